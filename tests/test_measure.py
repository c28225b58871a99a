"""Timing, floors and sweep as far as a CPU can tell: sizes, formulas, checks. No timing is asserted anywhere."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import floors, gpu_processes, peers, sweep, sweep_point, timing, variants
from capturebook.measure.poison import fresh_memory_is_nan
from capturebook.measure.rows import sweep_points
from capturebook.params import Params
from capturebook.records import Record

MB = 1e6


@pytest.mark.parametrize(
    ("per_call", "l2", "sets"),
    [
        (0.65 * MB, 60 * MB, 277),  # 180 MB is more than 3 x 60 MB only by rounding: both give 277
        (0.65 * MB, 126 * MB, 582),  # a larger L2 wants more
        (180 * MB, 60 * MB, 8),
        (0, 4 * MB, 180_000_000),
    ],
)
def test_every_set_is_cold_when_its_turn_comes_again(per_call, l2, sets):
    assert timing.cold_sets(per_call, l2) == sets
    assert sets * max(per_call, 1) >= max(180 * MB, 3 * l2)


def test_variants_take_turns_at_going_first():
    assert [timing.rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert sorted(timing.rotated(["a", "b", "c"], 5)) == ["a", "b", "c"]


def test_spread_is_median_and_tenths():
    assert timing.spread([float(n) for n in range(1, 12)]) == {"median_us": 6.0, "p10_us": 2.0, "p90_us": 10.0}
    assert timing.spread([3.0]) == {"median_us": 3.0, "p10_us": 3.0, "p90_us": 3.0}


def test_floor_by_hand():
    """640 rows of 1 KiB at 4 TB/s: 0.164 us; 84 MFLOP at 800 TFLOP/s: 0.105 us."""
    assert math.isclose(floors.floor_us(640 * 1024, 84e6, 4.0, 800.0), 0.16384)
    assert math.isclose(floors.floor_us(1, 84e6, 4.0, 800.0), 0.105)
    assert floors.bound(640 * 1024, 84e6, 4.0, 800.0) == "bytes"
    assert floors.bound(1, 84e6, 4.0, 800.0) == "flops"
    assert math.isclose(floors.rate(8e9, 2000.0), 4.0)  # 8 GB in 2 ms
    with pytest.raises(ValueError, match=r"^tflops: 0.0; allowed: a number above 0$"):
        floors.floor_us(1, 1, 4.0, 0.0)


def test_other_processes_are_named_and_we_are_not():
    names = {71: "python3", 80: ""}
    assert gpu_processes.others({5}, 5, names.get) == []
    assert gpu_processes.others(set(), 5, names.get) == []
    assert gpu_processes.others({5, 71, 80}, 5, names.get) == ["pid 71 (python3)", "pid 80"]
    # in another pid namespace one of them is this process: alone if it is the only one
    assert gpu_processes.others({900}, 5, names.get) == []
    assert gpu_processes.others({71, 80}, 5, names.get) == ["pid 71 (python3)", "pid 80"]
    refused = gpu_processes.refusal(["pid 71 (python3)"])
    assert refused["status"] == "not_run" and "pid 71 (python3)" in refused["reason"]


def test_fresh_memory_is_nan_inside_the_block_only():
    with fresh_memory_is_nan():
        assert torch.empty(1000).isnan().all() and torch.empty_like(torch.zeros(9, dtype=torch.bfloat16)).isnan().all()
        assert torch.zeros(3).new_empty(5).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


POINT = {"batch": 3, "heads": 16, "context": 1024, "cache": "bf16", "rates": {}}


def at(batch, context, cache="bf16", shape="flash"):
    return {**POINT, "batch": batch, "context": context, "cache": cache, "shape": shape}


SMALL = sweep_point.Size(sets=2, window_slots=3 * 256, extra_slots=3 * 256)


def test_a_right_variant_passes_and_wrong_ones_do_not():
    from capturebook.kernels.sparse_mla import decode

    inputs = sweep_point.draw(POINT, SMALL, 0, "cpu")
    assert len(inputs) == 2 and not torch.equal(inputs[0].q, inputs[1].q)
    good = variants.verify("mma", partial(decode, *inputs[0].args()), inputs[0])
    assert [(c["call"], c["output"], c["ok"]) for c in good] == [("mma", "out", True), ("mma", "lse", True)]
    assert 0 < good[0]["error"] <= good[0]["tolerance"] == 3e-3

    def unwritten():
        out, lse = decode(*inputs[0].args())
        partly = torch.empty_like(out)
        partly[:, 1:] = out[:, 1:]
        return partly, lse

    def shifted():
        out, lse = decode(*inputs[0].args())
        return out, lse + 0.01

    assert [c["ok"] for c in variants.verify("unwritten", unwritten, inputs[0])] == [False, True]
    assert variants.verify("unwritten", unwritten, inputs[0])[0]["error"] is None  # infinite: no row of NaN is near
    assert [c["ok"] for c in variants.verify("shifted", shifted, inputs[0])] == [True, False]


def test_bytes_are_those_of_the_rows_really_selected():
    inputs = sweep_point.draw(POINT, SMALL, 0, "cpu")
    rates = {"tb_s": 2.0, "tflops": 100.0, "source": "test"}
    payload = sweep_point.common({**POINT, "rates": rates}, SMALL, inputs)
    rows = sum(int((x >= 0).sum()) for one in inputs for x in (one.window_indices, one.extra_indices)) / 2
    assert payload["bytes"] == pytest.approx(rows * (1024 + 4) + 2 * 3 * 16 * 1024, rel=0.02)
    assert payload["flops"] == pytest.approx(rows * 2 * 16 * 1024, rel=0.01)
    assert payload["floor_us"] == pytest.approx(payload["bytes"] / 2e12 * 1e6) and payload["floor_bound"] == "bytes"
    without = sweep_point.common(POINT, SMALL, inputs)
    assert without["floor_us"] is None
    found = sweep.speed([10.0, 20.0, 30.0], payload)
    assert found["median_us"] == 20.0 and found["tokens_per_second"] == pytest.approx(3 / 20e-6)
    assert found["share"] == pytest.approx(payload["floor_us"] / 20.0)
    assert found["gbps"] == pytest.approx(payload["bytes"] / 20e-6 / 1e9)
    assert sweep.speed([10.0], without)["share"] is None


def test_a_point_of_the_fp8_cache():
    """584 bytes a row, checked against float64 like any other; half again as many sets as in bf16 to be cold."""
    from capturebook.kernels.sparse_mla import decode

    point = {**POINT, "cache": "fp8"}
    inputs = sweep_point.draw(point, SMALL, 0, "cpu")
    assert inputs[0].window_cache.shape == (3, 149_760) and inputs[0].window_cache.dtype == torch.uint8
    assert [check["ok"] for check in variants.verify("mma fp8", partial(decode, *inputs[0].args()), inputs[0])] == [
        True,
        True,
    ]
    rows = sum(int((x >= 0).sum()) for one in inputs for x in (one.window_indices, one.extra_indices)) / 2
    payload = sweep_point.common(point, SMALL, inputs)
    assert payload["cache"] == "fp8"
    assert payload["bytes"] == pytest.approx(rows * (584 + 4) + 2 * 3 * 16 * 1024, rel=0.02)
    fp8, bf16 = (sweep_point.fit(at(64, 2048, cache), 60_000_000, 100 << 30) for cache in ("fp8", "bf16"))
    assert fp8.sets > bf16.sets and (fp8.window_slots, fp8.extra_slots) == (bf16.window_slots, bf16.extra_slots)
    probes = sweep.plan_sweep(Params(batches=[8], contexts=[2048], cache="fp8"), {})
    options = probes[0].subject.options
    assert options["cache"] == "fp8" and list(options["variants"]) == ["simt fp8", "mma fp8"]


def test_inputs_follow_memory_and_say_what_was_left_out():
    l2 = 60_000_000
    roomy = sweep_point.fit(at(64, 32768), l2, 100 << 30)
    assert (roomy.sets, roomy.window_slots, roomy.extra_slots) == (8, 64 * 256, 64 * 8192)
    assert roomy.left_out == () and roomy.problem == ""
    tight = sweep_point.fit(at(64, 32768), l2, 2 << 30)
    rows = tight.window_slots + tight.extra_slots
    assert tight.sets * rows * 1024 <= 2 << 30 and tight.extra_slots % 64 == 0
    assert tight.left_out == (f"extra cache of {tight.extra_slots} rows a set, not 524288: memory",)
    nothing = sweep_point.fit(at(64, 32768), l2, 1 << 28)
    assert nothing.problem == "needs 0.4 GiB of GPU memory, 0.2 are there"
    small = sweep_point.fit(at(1, 2048), l2, 4 << 30)
    assert small.sets * (112 + 448) * 1024 >= 3 * l2


def floor_record(**payload):
    return Record(run="r", probe="p", nonce="n", kind="floor", status="pass", payload=payload, started="", ended="")


def test_rates_come_from_the_preset_or_from_this_run():
    measured = floor_record(tb_s=3.0, tflops=400.0, source=floors.MEASURED)
    preset = Params(preset="h200", dram_tb_s=4.63, tensor_tflops=795.0)
    assert sweep.rates(preset, []) == {"tb_s": 4.63, "tflops": 795.0, "source": "preset h200"}
    assert sweep.rates(Params(), [measured]) == {"tb_s": 3.0, "tflops": 400.0, "source": floors.MEASURED}
    assert sweep.rates(Params(), []) == {}
    mixed = sweep.rates(Params(preset="mine", dram_tb_s=5.0), [measured])
    assert mixed["tb_s"] == 5.0 and mixed["tflops"] == 400.0
    assert mixed["source"] == f"preset mine (tb_s), the other {floors.MEASURED}"


def test_a_sweep_is_one_exclusive_probe_for_each_batch_and_context():
    params = Params(batches=[1, 8], contexts=[2048], kernels=["simt", "mma"], samples=7, seed=5)
    probes = sweep.plan_sweep(params, {})
    assert [(p.kind, p.exclusive, p.seed, p.subject.options["batch"], p.args["samples"]) for p in probes] == [
        ("sweep", True, 5, 1, 7),
        ("sweep", True, 5, 8, 7),
    ]
    assert list(probes[0].subject.options["variants"]) == ["simt", "mma"]
    assert len({p.id for p in probes}) == 2


def test_an_unknown_tuning_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^tuning: 'fast'; allowed: live, pinned, given$"):
        variants.prepare({"kernel": "mma", "tuning": "fast"}, 64, 8)


def test_floors_are_measured_only_where_the_preset_names_none():
    assert [p.kind for p in floors.plan_floors(SimpleNamespace(dram_tb_s=0.0, tensor_tflops=795.0, deadline=9))] == [
        "floor"
    ]
    assert floors.plan_floors(SimpleNamespace(dram_tb_s=4.63, tensor_tflops=795.0, deadline=9)) == []


def test_points_of_a_run_from_its_records_alone():
    probe = sweep.plan_sweep(Params(batches=[8], contexts=[2048]), {})[0]
    common = dict(run="r", nonce="n", kind="sweep", subject=probe.subject, started="", ended="")
    payload = {"batch": 8, "context": 2048, "heads": 64, "bytes": 5_000_000, "flops": 10**9, "floor_us": None}
    samples = {"simt": [90.0, 100.0, 110.0], "mma": [9.0, 10.0, 11.0]}
    variants = {n: {**probe.subject.options["variants"][n], **sweep.speed(us, payload)} for n, us in samples.items()}
    timed = Record(probe="a", status="pass", samples=samples, payload={**payload, "variants": variants}, **common)
    skipped = Record(probe="b", status="skipped", reason="no GPU", **common)
    points = sweep_points([skipped, timed])
    assert [(p["variant"], p["batch"], p["status"], len(p["us"])) for p in points] == [
        ("simt", 8, "skipped", 0),
        ("mma", 8, "skipped", 0),
        ("simt", 8, "pass", 3),
        ("mma", 8, "pass", 3),
    ]
    assert points[0]["reason"] == "no GPU" and "median_us" not in points[0]
    assert points[3]["median_us"] == 10.0 and points[3]["bytes"] == 5_000_000 and points[3]["kernel"] == "mma"
    assert sweep_points([skipped, timed, timed.model_copy(update={"status": "wrong", "samples": {}})])[2]["us"] == []


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
    with pytest.raises(ValueError, match="^shapes: v32 fp8; allowed: a shape, one of V4 with bf16 or fp8 after it$"):
        sweep.plan_sweep(Params(batches=[1], contexts=[64], options={"shapes": ["v32 fp8"]}), {})


def test_v32_is_known_by_its_shape_and_drawn_whole():
    from capturebook.kernels.sparse_mla.shapes import SHAPES

    for name, shape in SHAPES.items():
        (probe,) = sweep.plan_sweep(Params(batches=[2], contexts=[8192], options={"shapes": [name]}), {})
        assert probe.subject.options["cache"] == (shape.cache or "bf16")
    a = sweep_point.with_heads(at(2, 8192, "v32", "v32"))
    size = sweep_point.fit(a, 1, 100 << 30)
    assert a["heads"] == 128 and (size.window_slots, size.extra_slots) == (256, 2 * 8192)
    assert size.sets * 2 * 2048 * 7 / 8 * 656 >= 180e6
    (one,) = sweep_point.draw(a, sweep_point.Size(1, 256, 4096), 0, "cpu")
    payload = sweep_point.common(a, sweep_point.Size(1, 256, 4096), [one])
    assert payload["bytes"] == int(one.extra_lengths.sum()) * 660 + 2 * 128 * (2 * 1088 + 4) + 4 * 128 + 16


def test_a_peer_that_refuses_is_named_and_ours_is_not_excused(monkeypatch):
    import torch

    from capturebook.measure import variants

    def refuses(inputs):
        raise AssertionError("indices must be a multiple of 64\nmore")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setitem(peers.PEERS, "gather_bmm", peers.Peer("refuses", refuses))
    inputs, left = sweep_point.draw(POINT, SMALL, 0, "cpu"), {}
    named = {"auto": {"kernel": "auto", "tuning": "pinned"}, "other": {"kernel": "gather_bmm", "tuning": "none"}}
    found = sweep._calls({**POINT, "variants": named}, inputs, left)
    assert list(found) == ["auto"] and len(found["auto"]) == len(inputs)
    assert left == {"other": "AssertionError: indices must be a multiple of 64"}
    monkeypatch.setattr(variants, "prepare", lambda *args: refuses)
    with pytest.raises(AssertionError, match="multiple of 64"):
        sweep._calls({**POINT, "variants": {"auto": named["auto"]}}, inputs, {})


def test_flashmla_is_given_pages_lists_and_padded_heads(monkeypatch):
    """Its call as its documentation has it: pages of tokens, one list or two, no lengths for V3.2's kernel."""
    import sys

    from capturebook.kernels.sparse_mla.inputs import make_inputs
    from capturebook.kernels.sparse_mla.shapes import SHAPES

    seen = []

    def kernel(q, cache, table, lengths, width, schedule, **named):
        seen.append((q, cache, named))
        return q.new_zeros(len(q), 1, q.shape[2], width), q.new_zeros(len(q), q.shape[2], 1)

    stub = SimpleNamespace(get_mla_metadata=lambda: ("schedule", None), flash_mla_with_kvcache=kernel)
    monkeypatch.setitem(sys.modules, "flash_mla", stub)
    for name, heads, padded in (("flash", 8, 64), ("window", 64, 64), ("v32", 128, 128)):
        shape = SHAPES[name]
        inputs = make_inputs(0, 2, heads, cache=shape.cache or "fp8", **shape.inputs(8192))
        out, lse = peers.PEERS["flashmla"].setup(inputs)()
        assert out.shape == (2, heads, 512) and lse.shape == (2, heads)
        q, cache, named = seen[-1]
        assert q.shape == (2, 1, padded, 576 if name == "v32" else 512) and named["attn_sink"].shape == (padded,)
        assert ("extra_k_cache" in named) == ("extra_topk_length" in named) == (name == "flash")
        assert ("topk_length" in named) == (name != "v32")
        listed = inputs.extra_indices if name == "v32" else inputs.window_indices
        assert named["indices"].shape == (2, 1, listed.shape[1]) and (named["indices"][:, 0] == listed).all()
        assert cache.shape[1:] == ((64, 1, 656) if name == "v32" else (256, 1, 584))


def test_what_the_kernels_do_not_read_is_told():
    from capturebook.measure import variants

    assert variants.missing("simt", "v32", 128, 90) == "simt has no kernel for a v32 cache"
    assert variants.missing("auto", "v32", 128, 90) == variants.missing("simt", "fp8", 64, 90) == ""
    assert variants.missing("sdpa", "v32", 128, 90) == "sdpa does not read a v32 cache"


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
    with pytest.raises(ValueError, match=r"^shape: 'wide'; allowed: flash, pro, hca, window, mixed, v32, those"):
        sweep_point.fit(at(2, 8192, cache, "wide"), 1, 100 << 30)


def test_lengths_of_the_mixed_shape_cover_what_there_is():
    a = at(64, 8192, shape="mixed")
    (one,) = sweep_point.draw(a, sweep_point.Size(1, 64 * 256, 64 * 2048), 0, "cpu")
    both = one.window_lengths + one.extra_lengths
    assert both.min() < 100 and both.max() > 540 and (one.window_lengths == both.clamp(max=128)).all()
    assert ((one.window_indices >= 0).sum(1) == one.window_lengths).all()
    assert ((one.extra_indices >= 0).sum(1) == one.extra_lengths).all()


def test_an_unknown_peer_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^peers: 'cutlass'; allowed: flashmla, flashmla_prefill, gather_bmm, sdpa"):
        sweep.plan_sweep(Params(options={"peers": ["cutlass"]}), {})


def test_a_peer_that_cannot_run_here_says_why(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert peers.missing("flashmla", "bf16", 64, 90) == "flashmla does not read a bf16 cache"
    assert "flash_mla is not installed (pip install --no-deps sgl-flash-mla)" in peers.missing(
        "flashmla", "fp8", 64, 90
    )
    monkeypatch.setattr(peers, "find_spec", lambda name: name)
    assert peers.missing("flashmla", "fp8", 64, 90) == ""
    assert peers.missing("flashmla", "fp8", 64, 120) == "flashmla has kernels for sm_90 and sm_100, not for sm_120"
    assert peers.missing("flashmla", "fp8", 256, 90) == "flashmla has no kernel for 256 heads"
    assert peers.missing("sdpa", "fp8", 8, 120) == ""


def test_heads_are_padded_to_what_is_computed():
    assert [peers.PEERS["flashmla"].padded(heads) for heads in (8, 64, 65)] == [64, 64, 128]
    text = "BLOCK_H=16 BLOCK_N=32 num_warps=4 num_stages=2"
    assert variants.padded_heads({"kernel": "mma"}, 8, text) == 16
    assert variants.padded_heads({"kernel": "mma"}, 64, text) == 64
    assert variants.padded_heads({"kernel": "simt"}, 8, "BLOCK_N=16 num_warps=4 num_stages=1") == 8
    assert variants.padded_heads({"kernel": "gather_bmm"}, 8, "") == 8


def test_peers_gather_what_the_reference_reads():
    """With an exact softmax on the gathered rows, the reference's result: rows, masks and caches are right."""
    from capturebook.kernels.sparse_mla import decode_reference, error
    from capturebook.kernels.sparse_mla.inputs import make_inputs

    for cache in ("bf16", "fp8"):
        one = make_inputs(3, 2, 16, 1024, holes=0.2, cache=cache)
        *tensors, sink, scale = one.args()
        rows, valid = peers.gathered(*tensors)
        scores = (one.q.double() @ rows.double().mT * scale).masked_fill(~valid[:, None], -math.inf)
        lse = torch.logsumexp(scores, -1)
        out = torch.exp(scores - torch.logaddexp(lse, sink.double())[..., None]) @ rows.double()
        want, want_lse = decode_reference(*one.args())
        assert error(out, want) < 1e-6 and torch.allclose(lse, want_lse)


def test_a_sink_as_one_row_more_is_the_sink():
    from capturebook.kernels.sparse_mla import decode_reference, error
    from capturebook.kernels.sparse_mla.inputs import make_inputs

    one = make_inputs(4, 2, 16, 1024, kind="sink", holes=0.1)
    *tensors, sink, scale = one.args()
    rows, valid = peers.with_sink(*peers.gathered(*tensors))
    scores = (one.q.double() @ rows.double().mT * scale).masked_fill(~valid[:, None], -math.inf)
    scores[:, :, -1] = sink.double()
    lse = torch.logsumexp(scores, -1)
    want, want_lse = decode_reference(*one.args())
    assert error(torch.softmax(scores, -1) @ rows.double(), want) < 1e-6
    assert torch.allclose(peers.without_sink(lse, sink.double()), want_lse)


def test_flashmla_reads_the_pages_as_they_lie():
    cache = torch.arange(3 * 37_440, dtype=torch.int64).to(torch.uint8).view(3, 37_440)
    pages = peers._paged(cache)
    assert pages.shape == (3, 64, 1, 584) and pages.stride() == (37_440, 584, 584, 1)
    assert torch.equal(pages[2, 63, 0], cache[2, 63 * 584 : 64 * 584])


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
