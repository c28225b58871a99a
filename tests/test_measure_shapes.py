"""Shapes of the sweep: which are asked for in which format, and the lists, heads and lengths that each decides."""

import pytest

from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.kernels.sparse_mla.shapes import SHAPES
from capturebook.measure import sweep, sweep_point, variants
from capturebook.measure.floors import floor_of
from capturebook.measure.rows import entries_of, sweep_points
from capturebook.params import Params, load_preset, validate
from capturebook.records import Record
from capturebook.report import figures_peers, figures_sweep
from capturebook.report.readable import unreadable
from sweep_cases import at


def test_shapes_and_peers_are_asked_for_by_options():
    asked = {"shapes": ["pro", "mixed"], "peers": ["flashmla", "gather_bmm"], "tuning": "pinned"}
    probes = sweep.plan_sweep(Params(batches=[8], contexts=[8192], kernels=["mma"], cache="fp8", options=asked), {})
    options = [p.subject.options for p in probes]
    assert [o["shape"] for o in options] == ["pro", "mixed"]
    assert [p.label for p in probes] == ["sweep pro, batch 8, context 8192", "sweep mixed, batch 8, context 8192"]
    assert options[0]["variants"] == {
        "mma fp8": {"kernel": "mma", "tuning": "pinned"},
        "flashmla fp8": {"kernel": "flashmla", "tuning": "none"},
        "gather_bmm fp8": {"kernel": "gather_bmm", "tuning": "none"},
    }


def test_a_shape_may_name_its_format_and_peers_stand_beside_what_they_read():
    asked = {
        "shapes": {"flash": [1], "flash bf16": [1, 8], "v32": [2]},
        "peers": ["flashmla", "flashmla_prefill", "sdpa"],
    }
    probes = sweep.plan_sweep(Params(contexts=[8192], kernels=["auto"], cache="fp8", options=asked), {})
    points = [p.subject.options for p in probes]
    assert [(o["shape"], o["cache"], o["batch"]) for o in points] == [
        ("flash", "fp8", 1), ("flash", "bf16", 1), ("flash", "bf16", 8), ("v32", "v32", 2)
    ]  # fmt: skip
    assert [list(o["variants"]) for o in points[:2]] == [["auto fp8", "flashmla fp8", "sdpa fp8"],
                                                         ["auto", "flashmla_prefill", "sdpa"]]  # fmt: skip
    assert list(points[3]["variants"]) == ["auto v32", "flashmla v32"]
    assert [p.label for p in probes[1:]] == [
        "sweep bf16, batch 1, context 8192", "sweep bf16, batch 8, context 8192", "sweep v32, batch 2, context 8192"
    ]  # fmt: skip
    assert probes[0].args["ahead"] == points[1:] and "ahead" not in probes[1].args, "the first one compiles for all"
    none = {"shapes": ["flash"], "peers": ["flashmla_prefill"]}
    (told,) = sweep.plan_sweep(Params(batches=[1], contexts=[64], kernels=["mma"], cache="fp8", options=none), {})
    assert "flashmla_prefill fp8" in told.subject.options["variants"], "it says that it cannot"
    allowed = "allowed: flash, pro, hca, window, mixed, v32, tp8, those of V4 with bf16 or fp8 after it$"
    for wrong in ("v32 fp8", "flash fp4", "wide"):
        with pytest.raises(ValueError, match=f"^shapes: '{wrong}'; {allowed}"):
            sweep.plan_sweep(Params(batches=[1], contexts=[64], options={"shapes": [wrong]}), {})
    assert tuple(SHAPES) == sweep.SHAPES


def test_shapes_may_have_batches_of_their_own():
    options = {"shapes": {"flash": [1, 64], "mixed": [64]}}
    probes = sweep.plan_sweep(Params(batches=[8], contexts=[8192], options=options), {})
    assert [(p.subject.options["shape"], p.subject.options["batch"]) for p in probes] == [
        ("flash", 1),
        ("flash", 64),
        ("mixed", 64),
    ]
    with pytest.raises(ValueError, match=r"^shapes: pro: \[0\]; allowed: batches, numbers above 0$"):
        sweep.plan_sweep(Params(options={"shapes": {"pro": [0]}}), {})


def test_v32_is_known_by_its_shape_and_drawn_whole():
    for name, shape in SHAPES.items():
        (probe,) = sweep.plan_sweep(Params(batches=[2], contexts=[8192], options={"shapes": [name]}), {})
        assert probe.subject.options["cache"] == (shape.cache or "bf16")
    a = sweep_point.with_heads(at(2, 8192, "v32", "v32"))
    size = sweep_point.fit(a, 1, 100 << 30)
    assert a["heads"] == 128 and (size.window_slots, size.extra_slots) == (256, 2 * 8192)
    assert (size.sets - 1) * 2 * 2048 * 656 < 180e6 <= size.sets * 2 * 2048 * 656
    (one,) = sweep_point.draw(a, sweep_point.Size(1, 256, 4096), 0, "cpu")
    payload = sweep_point.common(a, sweep_point.Size(1, 256, 4096), [one])
    assert (one.extra_lengths == 2048).all() and payload["entries"] == 2048
    assert payload["bytes"] == 2 * 2048 * 660 + 2 * 128 * (2 * 1088 + 4) + 4 * 128 + 16


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
@pytest.mark.parametrize("shape, widths", [("pro", (128, 1024)), ("hca", (128, 64)), ("window", (128, 0))])
def test_a_shape_decides_lists_heads_and_pools(shape, widths, cache):
    a = at(2, 8192, cache, shape)
    size = sweep_point.fit(a, 1, 100 << 30)
    (one,) = sweep_point.draw(a, sweep_point.Size(1, size.window_slots, size.extra_slots), 0, "cpu")
    assert (one.window_indices.shape[1], one.extra_indices.shape[1]) == widths
    context = 8192 // {"pro": 4, "hca": 128, "window": 4}[shape]
    page = {"pro": 64, "hca": 2, "window": 64}[shape]
    slots = one.extra_cache.shape[0] * (1 if cache == "bf16" else page)
    assert slots == (2 * context if widths[1] else page)
    assert sweep_point.shape_of(a).heads == (128 if shape == "pro" else None)
    assert (one.window_lengths == 128).all() and (one.extra_lengths == widths[1]).all(), "all that there is"
    assert sweep_point.common(a, size, [one])["entries"] == sum(widths)
    with pytest.raises(ValueError, match=r"^shape: 'wide'; allowed: flash, pro, hca, window, mixed, v32, tp8, those"):
        sweep_point.fit(at(2, 8192, cache, "wide"), 1, 100 << 30)


def test_lengths_of_the_mixed_shape_cover_what_there_is():
    a = at(64, 8192, shape="mixed")
    (one,) = sweep_point.draw(a, sweep_point.Size(1, 64 * 256, 64 * 2048), 0, "cpu")
    both = one.window_lengths + one.extra_lengths
    assert sweep_point.common(a, sweep_point.Size(1, 0, 0), [one])["entries"] == float(both.sum()) / 64
    assert both.min() < 100 and both.max() > 540 and (one.window_lengths == both.clamp(max=128)).all()
    assert ((one.window_indices >= 0).sum(1) == one.window_lengths).all()
    assert ((one.extra_indices >= 0).sum(1) == one.extra_lengths).all()


HELD = {"flash": 640, "tp8": 640, "mixed": 320.5, "hca": 128 + 64, "window": 128, "pro": 1152, "v32": 2048}
"""Entries that a request's lists hold at a context of 8192, by shape: V4's and V3.2's own figures."""


def planted(probe) -> Record:
    """A point as a GPU would leave it, with made-up times of ours and FlashMLA's, and the stock kernel's."""
    asked = sweep_point.with_heads(probe.subject.options)
    payload = sweep_point.common(asked, sweep_point.Size(8, 256, 64), None)
    cost = decode_cost(asked["batch"], asked["heads"], int(HELD[asked["shape"]] * asked["batch"]), asked["cache"])
    rates = {"tb_s": 4.63, "tflops": 795.0, "source": "preset"}
    payload |= {"bytes": cost.bytes, "flops": cost.flops, **floor_of(cost.bytes, cost.flops, rates)}
    payload |= {"entries": float(HELD[asked["shape"]]), "gpu": "NVIDIA H200"}
    us = {"simt": 900.0, "auto": 9.0, "flashmla": 10.0, "flashmla_prefill": 10.0}
    samples = {name: [us[v["kernel"]] + n for n in range(3)] for name, v in asked["variants"].items()}
    payload["variants"] = {
        name: {
            **variant,
            "config": "BLOCK_H=16",
            "padded_heads": variants.padded_heads(variant, asked["heads"], "BLOCK_H=16"),
        }
        | sweep.speed(samples[name], payload)
        for name, variant in asked["variants"].items()
    }
    common = {"run": "r", "nonce": "n", "kind": "sweep", "subject": probe.subject, "started": "", "ended": ""}
    return Record(probe=probe.id, status="pass", samples=samples, payload=payload, **common)


def test_the_preset_has_a_row_of_every_shape_and_the_report_shows_them():
    params = validate(load_preset("sparse_mla"))
    probes = sweep.plan_sweep(params, {})
    places = [(p.subject.options["shape"], p.subject.options["cache"], p.subject.options["batch"]) for p in probes]
    assert {shape for shape, _, _ in places} == set(SHAPES) == set(HELD) and len(set(places)) == len(places)
    assert {("tp8", "fp8", 1), ("hca", "fp8", 64), ("window", "fp8", 8), ("mixed", "fp8", 64)} <= set(places)
    records = [planted(probe) for probe in probes]
    assert [unreadable(record) for record in records] == [""] * len(records)
    points = sweep_points(records)
    assert {p["shape"]: entries_of(p) for p in points} == HELD
    text = figures_peers.compared(points).text
    rank = text[text.index("V4-Flash TP8, 128 + 512 tokens, fp8 pages, 8 heads, context 8,192.") :]
    assert "8, ours as 16, FlashMLA as 64" in rank.splitlines()[3] and rank.splitlines()[3].split()[:3] == [
        "batch",
        "1",
        "640",
    ]
    for shape in ("HCA, 128 + context/128 tokens", "window alone, 128 tokens"):
        assert f"{shape}, fp8 pages, 64 heads, context 8,192." in text
    assert "not judged" not in text and "Lists held" not in text, "lists are full"
    html = figures_sweep.sweep([p for p in points if p["shape"] in ("tp8", "hca")]).html
    assert "192 (HCA, 128 + context/128 tokens)" in html and "640 (V4-Flash TP8, " in html
