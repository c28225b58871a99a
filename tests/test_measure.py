"""Timing, floors and sweep as far as a CPU can tell: sizes, formulas, checks. No timing is asserted anywhere."""

import math
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import floors, gpu_processes, sweep, timing
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
SMALL = sweep.Size(sets=2, window_slots=3 * 256, extra_slots=3 * 256)


def test_a_right_variant_passes_and_wrong_ones_do_not():
    from capturebook.kernels.sparse_mla import decode

    inputs = sweep.draw(POINT, SMALL, 0, "cpu")
    assert len(inputs) == 2 and not torch.equal(inputs[0].q, inputs[1].q)
    good = sweep.verify("mma", decode, inputs[0])
    assert [(c["call"], c["output"], c["ok"]) for c in good] == [("mma", "out", True), ("mma", "lse", True)]
    assert 0 < good[0]["error"] <= good[0]["tolerance"] == 3e-3

    def unwritten(*args):
        out, lse = decode(*args)
        partly = torch.empty_like(out)
        partly[:, 1:] = out[:, 1:]
        return partly, lse

    def shifted(*args):
        out, lse = decode(*args)
        return out, lse + 0.01

    assert [c["ok"] for c in sweep.verify("unwritten", unwritten, inputs[0])] == [False, True]
    assert sweep.verify("unwritten", unwritten, inputs[0])[0]["error"] is None  # infinite: no row of NaN is near
    assert [c["ok"] for c in sweep.verify("shifted", shifted, inputs[0])] == [True, False]


def test_bytes_are_those_of_the_rows_really_selected():
    inputs = sweep.draw(POINT, SMALL, 0, "cpu")
    rates = {"tb_s": 2.0, "tflops": 100.0, "source": "test"}
    payload = sweep.common({**POINT, "rates": rates}, SMALL, inputs)
    rows = sum(int((x >= 0).sum()) for one in inputs for x in (one.window_indices, one.extra_indices)) / 2
    assert payload["bytes"] == pytest.approx(rows * (1024 + 4) + 2 * 3 * 16 * 1024, rel=0.02)
    assert payload["flops"] == pytest.approx(rows * 2 * 16 * 1024, rel=0.01)
    assert payload["floor_us"] == pytest.approx(payload["bytes"] / 2e12 * 1e6) and payload["floor_bound"] == "bytes"
    without = sweep.common(POINT, SMALL, inputs)
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
    inputs = sweep.draw(point, SMALL, 0, "cpu")
    assert inputs[0].window_cache.shape == (3, 149_760) and inputs[0].window_cache.dtype == torch.uint8
    assert [check["ok"] for check in sweep.verify("mma fp8", decode, inputs[0])] == [True, True]
    rows = sum(int((x >= 0).sum()) for one in inputs for x in (one.window_indices, one.extra_indices)) / 2
    payload = sweep.common(point, SMALL, inputs)
    assert payload["cache"] == "fp8"
    assert payload["bytes"] == pytest.approx(rows * (584 + 4) + 2 * 3 * 16 * 1024, rel=0.02)
    fp8, bf16 = (sweep.fit(64, 2048, 60_000_000, 100 << 30, cache) for cache in ("fp8", "bf16"))
    assert fp8.sets > bf16.sets and (fp8.window_slots, fp8.extra_slots) == (bf16.window_slots, bf16.extra_slots)
    probes = sweep.plan_sweep(Params(batches=[8], contexts=[2048], cache="fp8"), {})
    options = probes[0].subject.options
    assert options["cache"] == "fp8" and list(options["variants"]) == ["simt fp8", "mma fp8"]


def test_inputs_follow_memory_and_say_what_was_left_out():
    l2 = 60_000_000
    roomy = sweep.fit(64, 32768, l2, 100 << 30)
    assert (roomy.sets, roomy.window_slots, roomy.extra_slots) == (8, 64 * 256, 64 * 8192)
    assert roomy.left_out == () and roomy.problem == ""
    tight = sweep.fit(64, 32768, l2, 2 << 30)
    rows = tight.window_slots + tight.extra_slots
    assert tight.sets * rows * 1024 <= 2 << 30 and tight.extra_slots % 64 == 0
    assert tight.left_out == (f"extra cache of {tight.extra_slots} rows a set, not 524288: memory",)
    nothing = sweep.fit(64, 32768, l2, 1 << 28)
    assert nothing.problem == "needs 0.4 GiB of GPU memory, 0.2 are there"
    small = sweep.fit(1, 2048, l2, 4 << 30)
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
    with pytest.raises(ValueError, match=r"^tuning: 'fast'; allowed: live, pinned$"):
        sweep.prepare({"kernel": "mma", "tuning": "fast"}, 64, 8)


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
