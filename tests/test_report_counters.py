"""Counters of a sweep point's kernels in the report: figures as ncu gave them on an H200 on 30 November 2026.

Only the stall "made_up", and the record that another one replaces, are planted.
"""

import json
from types import SimpleNamespace

import fake_run
from capturebook.chain import parts
from capturebook.chain.folder import RunFolder
from capturebook.measure.rows import counters_of
from capturebook.records import Record, Subject
from capturebook.report import figures_peers
from test_report_peers import COMMON, point

H200 = {"tool": "ncu 2025.3.1", "gpu": "NVIDIA H200"}
COLUMNS = {
    "kernel": "gluon_columns_kernel", "grid": [4, 4, 8], "block": 128, "us": 12.992, "issue": 0.3259, "tensor": 0.0952,
    "dram": 0.0552, "l2": 0.163, "l1": 0.3988, "warps": 0.0624,
    "stalls": {"barrier": 0.15, "long_scoreboard": 0.42, "selected": 1.0, "short_scoreboard": 0.36, "wait": 0.52},
}  # fmt: skip
FP8 = {
    "kernel": "gluon_fp8_kernel", "grid": [2, 1, 64], "block": 512, "us": 27.488, "issue": 0.2708, "tensor": 0.23,
    "dram": 0.2348, "l2": 0.452, "l1": 0.5637, "warps": 0.2497,
    "stalls": {"barrier": 3.85, "lg_throttle": 1.48, "long_scoreboard": 3.48, "short_scoreboard": 1.23},
}  # fmt: skip
FLASHMLA = [
    {
        "kernel": "flash_fwd_splitkv_mla_fp8_sparse_kernel", "grid": [1, 1, 132], "block": 384, "us": 15.584,
        "issue": 0.1352, "tensor": 0.0826, "dram": 0.0494, "l2": 0.2324, "l1": 0.2175, "warps": 0.1871,
        "stalls": {"barrier": 7.43, "long_scoreboard": 7.39, "selected": 1.01, "no_instruction": 2.87},
    },
    {
        "kernel": "flash_fwd_mla_combine_kernel", "grid": [8, 1, 8], "block": 256, "us": 8.64, "issue": 0.1053,
        "tensor": 0.0006, "dram": 0.2546, "l2": 0.3078, "l1": 0.1405, "warps": 0.1195,
        "stalls": {"long_scoreboard": 14.23, "selected": 1.0, "short_scoreboard": 0.84, "made_up": 2.0},
    },
]  # fmt: skip


def record(probe: str, batch: int, kernels: dict, **fields) -> Record:
    payload = {**H200, "batch": batch, "context": 8192, "shape": "flash", "cache": "fp8", "heads": 64}
    common = dict(run="r", nonce="n", kind="counters", started="", ended="", subject=Subject(target="t"))
    return Record(probe=probe, payload={**payload, "kernels": kernels}, **common, **{"status": "pass", **fields})


RECORDS = [
    record("64", 64, {"auto fp8": [FP8]}),
    record("8", 8, {"auto fp8": [{**COLUMNS, "us": 99.0}]}),
    record("8", 8, {"auto fp8": [COLUMNS], "flashmla fp8": FLASHMLA}),
    record("1", 1, {}, status="not_run", reason="no ncu"),
]


def test_each_kernel_has_its_shares_and_what_it_waits_for():
    rows = counters_of(RECORDS)
    assert [(r["variant"], r["batch"], r["kernel"], r["us"]) for r in rows] == [
        ("auto fp8", 64, "gluon_fp8_kernel", 27.488), ("auto fp8", 8, "gluon_columns_kernel", 12.992),
        ("flashmla fp8", 8, FLASHMLA[0]["kernel"], 15.584), ("flashmla fp8", 8, FLASHMLA[1]["kernel"], 8.64),
    ]  # fmt: skip
    waits = [("wait", 0.52), ("long_scoreboard", 0.42), ("short_scoreboard", 0.36), ("barrier", 0.15)]
    assert rows[1]["waits"] == waits, "the most first, and without the cycle in which it was issued"


def test_points_that_miss_their_target_come_first_with_their_counters():
    """At 8 requests 13.9 us beside FlashMLA's 15.6: 0.89 of it, and 0.85 is asked for. At 64 the target is met."""
    here = {**COMMON, "gpu": "NVIDIA H200"}
    times = {(64, "auto"): 31.9, (64, "flashmla"): 44.7, (8, "auto"): 13.9, (8, "flashmla"): 15.6}
    points = [point(kernel, [us], 64, **{**here, "batch": batch}) for (batch, kernel), us in times.items()]
    text = figures_peers.compared(points, counters_of(RECORDS)).text
    lines = text[text.index("Counters by ncu 2025.3.1 on an NVIDIA H200") :].splitlines()
    assert [line.partition("  ")[0] for line in lines[3:7]] == ["flash in fp8, batch 8, target missed"] * 3 + [
        "flash in fp8, batch 64"
    ]
    first = " ".join(lines[3].split())
    assert first.endswith("13.0 33% 10% 6% 16% 40% 6% the last instruction's result 0.52, memory 0.42")
    assert "a barrier 7.43, memory 7.39" in lines[4] and "memory 14.23, made_up 2.00" in lines[5]
    assert text.index("Limited by bytes") < text.index("Counters by") < text.index("Configuration")
    assert "Counters" not in figures_peers.compared(points).text


def test_notebook_04_shows_them_where_the_run_has_them(tmp_path, repo):
    """Its own cell, beside times of the same point; a run that they were not added to has none."""
    cells = json.loads((repo / "notebooks" / "04_throughput_sweep.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = ("".join(c["source"]) for c in cells if "figures_peers.compared" in "".join(c["source"]))
    (cell,) = (line for line in cell.splitlines() if "figures_peers.compared" in line)
    here = {**COMMON, "gpu": "NVIDIA H200"}
    names = {"points": [point("auto", [13.9], 64, **here)], "figures_peers": figures_peers, "parts": parts}
    for name, records in (("with", RECORDS), ("without", [])):
        run = fake_run.write(tmp_path / name, [r.model_copy(update={"nonce": "f00d"}) for r in records])
        shown = eval(cell, {**names, "session": SimpleNamespace(run=RunFolder.open(run))}).text
        assert ("Counters by ncu 2025.3.1 on an NVIDIA H200" in shown) == (name == "with")
        assert ("flash in fp8, batch 8" in shown) == (name == "with") and "13.90" in shown
