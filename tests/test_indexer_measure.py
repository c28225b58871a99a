"""The indexer as a subject and in the sweep: growing lengths, what the check catches, points, sizes, the figure."""

import html
import re
from types import SimpleNamespace

import pytest
import torch
import triton

from capturebook.measure import indexer_interpret, indexer_sweep, own_sweep, sweep
from capturebook.measure.own_step import Side, Variant, check
from capturebook.measure.rows import sweep_points
from capturebook.params import Params, load_preset, validate
from capturebook.probes import ProbePool
from capturebook.records import Record
from capturebook.report import conclusions, figures_sweep
from capturebook.subjects import indexer
from test_measure_interpret import OLD

SMALL = dict(batch=3, context=4096, max_context=8192, topk=64)


@pytest.fixture
def step():
    return indexer.build(**SMALL)


def calls(step, function, number: int = 4) -> list[bool]:
    """What the step's check says of so many calls in a row, each with other inputs."""
    side, variant = Side(step), None
    variant = Variant("step", side, function)
    return [check(variant, step, step.make_inputs(seed), str(seed))[0].ok for seed in range(number)]


@pytest.mark.parametrize("kernel, key_format", [("stock", "bf16"), ("bounded", "bf16"), ("bounded", "fp8")])
def test_step_and_twin_are_right_while_lengths_grow(kernel, key_format):
    step = indexer.build(kernel=kernel, key_format=key_format, **SMALL)
    assert calls(step, step.fn) == [True] * 4
    assert calls(step.twin, step.twin.fn) == [True] * 4


def test_lengths_grow_in_place_and_begin_again(step):
    lengths = step.state()["lengths"]
    seen = []
    for i in range(indexer.CALLS + 1):
        step.advance(i)
        seen.append(lengths.clone())
    assert step.state()["lengths"].data_ptr() == lengths.data_ptr()
    assert all(((b - a) == 16).all() for a, b in zip(seen[:-1], seen[1:-1])), "1/64 of 1024 keys"
    assert torch.equal(seen[0], seen[-1]) and (seen[-2] <= 1024).all() and (seen[-2] >= 896).all()
    assert step.check(step.make_inputs(0), step.fn(*step.make_inputs(0)))


def test_lengths_baked_into_a_step_are_wrong_as_soon_as_they_grow(step):
    """What a graph does whose loop bounds were read on the host."""
    old = step.state()["lengths"].clone()
    step.advance(0)

    def baked(q, weights):
        lengths = step.state()["lengths"]
        now = lengths.clone()
        lengths.copy_(old - 16 * indexer.CALLS)
        slots = step.fn(q, weights)
        lengths.copy_(now)
        return slots

    assert calls(step, baked) == [False] * 4


def test_a_selection_that_lacks_a_key_or_has_it_twice_is_wrong(step):
    def lacks_the_best(q, weights):
        slots = step.fn(q, weights)  # sorted: torch.topk on a CPU
        slots[1, 0] = step.twin.fn(q, -weights)[1, 0]
        return slots

    def twice(q, weights):
        slots = step.fn(q, weights)
        slots[2, 5] = slots[2, 6]
        return slots

    assert calls(step, lacks_the_best) == calls(step, twice) == [False] * 4


def test_options_that_cannot_be_are_one_line():
    with pytest.raises(ValueError, match="^kernel: 'mma'; allowed: stock, bounded$"):
        indexer.build(kernel="mma")
    with pytest.raises(ValueError, match="^context: 8192; allowed: 4 to max_context, 4096$"):
        indexer.build(context=8192, max_context=4096)


def test_the_preset_plans_a_point_for_each_context_and_maximum():
    params = validate(load_preset("indexer"))
    probes = indexer_sweep.plan_indexer_sweep(params, {})
    sizes = [(p.subject.options["context"], p.subject.options["max_context"]) for p in probes]
    assert sizes == [(c, m) for m in (131072, 1048576) for c in (2048, 8192, 32768, 131072)]
    assert all(p.exclusive and list(p.subject.options["variants"]) == ["stock", "bounded"] for p in probes)
    assert len({p.id for p in probes}) == 8
    small = params.model_copy(update={"max_contexts": [8192]})
    assert [p.subject.options["context"] for p in indexer_sweep.plan_indexer_sweep(small, {})] == [2048, 8192]


def test_a_step_of_ones_own_that_takes_a_maximum_is_swept_over_it():
    params = Params(subject="own.py:build", batches=[8], contexts=[2048, 8192], max_contexts=[4096, 16384])

    def points(*takes):
        probes = own_sweep.plan_own_sweep(params, {}, list(takes), "", {})
        return [p.subject.options["build"] for p in probes]

    assert points("context") == [{"context": 2048}, {"context": 8192}]
    assert points("context", "max_context") == [
        {"context": 2048, "max_context": 4096},
        {"context": 2048, "max_context": 16384},
        {"context": 8192, "max_context": 16384},
    ]


def test_input_sets_are_cold_if_they_fit():
    l2 = 60_000_000
    # 64 rows of 2048 keys of 256 B are 33.5 MB, of which 7/8 count at least: 7 of them make 180 MB
    point = dict(batch=64, context=8192, max_context=131072, key_format="bf16", memory_gib=0)
    assert indexer_sweep.fit(point, l2, 140 << 30) == (7, "")
    assert indexer_sweep.fit({**point, "key_format": "fp8"}, l2, 140 << 30) == (12, "")
    large = {**point, "context": 131072, "max_context": 1 << 20}
    assert indexer_sweep.fit(large, l2, 140 << 30) == (2, "")
    sets, problem = indexer_sweep.fit({**large, "memory_gib": 1}, l2, 140 << 30)
    assert sets == 0 and problem == "needs 1.1 GiB of GPU memory, 1.0 are there"


def test_an_unknown_tuning_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^tuning: 'fast'; allowed: live, pinned$"):
        indexer_sweep.prepare({"kernel": "bounded", "tuning": "fast"})


def test_a_check_is_held_against_float64():
    inputs = indexer.make_inputs(0, batch=2, context=4096, max_context=4096)
    right = indexer_sweep.verify("bounded", indexer_sweep.prepare({"kernel": "bounded", "tuning": "live"}), inputs)
    assert right["ok"] and right["error"] <= 1e-6
    missing = indexer_sweep.verify("none", lambda *tensors: torch.full((2, 512), -1), inputs)
    assert not missing["ok"] and missing["error"] is None


def timed(probe) -> Record:
    """A record of the probe in which stock takes 1 us a 1024 tokens of room, bounded 1 us a 1024 of context."""
    asked = probe.subject.options
    payload = {name: asked[name] for name in ("batch", "context", "max_context")}
    payload |= {"bytes": 1000, "flops": 1000, "floor_us": 0.5, "floor_bound": "bytes", "floor_source": "test"}
    payload |= {"method": indexer_sweep.METHOD, "tokens_per_second_means": indexer_sweep.TOKENS}
    samples = {"stock": [asked["max_context"] / 1024] * 3, "bounded": [asked["context"] / 1024] * 3}
    payload["variants"] = {
        name: {**asked["variants"][name], **sweep.speed(us, payload)} for name, us in samples.items()
    }
    common = dict(run="r", nonce="n", kind="sweep", subject=probe.subject, started="", ended="")
    return Record(probe=probe.id, status="pass", samples=samples, payload=payload, **common)


def test_the_figure_has_context_below_and_a_panel_for_each_maximum():
    probes = indexer_sweep.plan_indexer_sweep(validate(load_preset("indexer")), {})
    points = sweep_points([timed(probe) for probe in probes])
    assert len(points) == 16
    shown = figures_sweep.sweep(points)
    alt = html.unescape(re.search(r'alt="([^"]*)"', shown.html)[1])
    assert alt.startswith(
        "Time over context for stock, bounded, one panel for each of: "
        "batch 64, room for 131,072; batch 64, room for 1,048,576. "
    )
    assert "with bounded, batch 64, context 2048 of 131072." in alt
    assert "One indexer call" in shown.html and "8192 of 1048576" in shown.text
    status, text = conclusions.sweep(points)
    assert status == "pass" and "by bounded at batch 64, context 2048 of 131072" in text


@pytest.mark.skipif(OLD, reason=f"the interpreter of triton {triton.__version__} cannot loop with numpy >= 2.4")
def test_interpreted_kernels_agree_with_float64(tmp_path):
    run = SimpleNamespace(path=tmp_path, name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        records = pool.run(indexer_interpret.plan_indexer_interpret(["bounded"]))
    assert [(r.status, r.reason) for r in records] == [("pass", "")] * 2
    assert [[check.output for check in r.checks] for r in records] == [["scores", "selection"]] * 2
    assert all(0 < r.payload["error"] < 1e-6 for r in records)


def test_an_interpreted_kernel_that_is_wrong_is_wrong(monkeypatch):
    from capturebook.kernels.indexer import interpret as theirs
    from capturebook.kernels.indexer import select

    def without_relu(kernel, tensors, topk):
        q, weights, keys, table, lengths = tensors
        rows = keys[table.long()].flatten(1, 2).float()
        return torch.einsum("bhd,btd,bh->bt", q.float(), rows, weights), select(*tensors, topk=topk)

    monkeypatch.setattr(theirs, "interpret", without_relu)
    probe = indexer_interpret.plan_indexer_interpret(["bounded"])[0]
    result = indexer_interpret.run(SimpleNamespace(probe=probe, seed=0, stage=lambda name: None))
    assert result["status"] == "wrong" and result["reason"].startswith("bounded differs from float64: scores ")
    assert [check["ok"] for check in result["checks"]] == [False, True]
