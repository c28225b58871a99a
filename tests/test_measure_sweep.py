"""A point of the sweep: its plan, what its inputs take, that a wrong variant is found, what is read back of it."""

from functools import partial

import pytest
import torch

from capturebook.kernels.sparse_mla import decode
from capturebook.measure import sweep, sweep_point, variants
from capturebook.measure.rows import sweep_points
from capturebook.params import Params
from capturebook.records import Record
from sweep_cases import POINT, SMALL, at


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
    with pytest.raises(ValueError, match=r"^tuning: 'fast'; allowed: live, pinned$"):
        sweep.plan_sweep(Params(options={"tuning": "fast"}), {})


def test_a_right_variant_passes_and_wrong_ones_do_not():
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
    fp8, bf16 = (sweep_point.fit(at(32, 2048, cache), 60_000_000, 100 << 30) for cache in ("fp8", "bf16"))
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
    assert small.sets * (128 + 512) * 1024 >= 3 * l2


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


def test_what_the_kernels_do_not_read_is_told():
    assert variants.missing("simt", "v32", 128, 90) == "simt has no kernel for a v32 cache"
    assert variants.missing("auto", "v32", 128, 90) == variants.missing("simt", "fp8", 64, 90) == ""
    assert variants.missing("sdpa", "v32", 128, 90) == "sdpa does not read a v32 cache"
