"""Timing, floors and rates as far as a CPU can tell: sizes and formulas. No timing is asserted anywhere."""

import math
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import floors, gpu_processes, sweep, timing
from capturebook.measure.poison import fresh_memory_is_nan
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


def test_floor_by_hand():
    """640 rows of 1 KiB at 4 TB/s: 0.164 us; 84 MFLOP at 800 TFLOP/s: 0.105 us."""
    assert math.isclose(floors.floor_us(640 * 1024, 84e6, 4.0, 800.0), 0.16384)
    assert math.isclose(floors.floor_us(1, 84e6, 4.0, 800.0), 0.105)
    assert floors.bound(640 * 1024, 84e6, 4.0, 800.0) == "bytes"
    assert floors.bound(1, 84e6, 4.0, 800.0) == "flops"
    assert math.isclose(floors.rate(8e9, 2000.0), 4.0)  # 8 GB in 2 ms
    with pytest.raises(ValueError, match=r"^tflops: 0.0; allowed: a number above 0$"):
        floors.floor_us(1, 1, 4.0, 0.0)


def test_floors_are_measured_only_where_the_preset_names_none():
    assert [p.kind for p in floors.plan_floors(SimpleNamespace(dram_tb_s=0.0, tensor_tflops=795.0, deadline=9))] == [
        "floor"
    ]
    assert floors.plan_floors(SimpleNamespace(dram_tb_s=4.63, tensor_tflops=795.0, deadline=9)) == []


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
