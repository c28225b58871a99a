"""Hardware counters of a sweep's points: what `ncu` runs, and its table as records.

`main` runs under ncu: one process for all points, since ncu takes about 20 s to start on a host with an H200. It draws
a point's inputs once and makes every variant's call before the counted one, which stands between cudaProfilerStart and
cudaProfilerStop. The table has kernels in order of launch and no names of calls, so a kernel that none of them launches
follows each, and the names are left beside the table. (With a graph of the call captured instead, to count its kernels,
the process ended with an error under ncu; why was not found out.)
"""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..records import Record
from .rows import sweep_points

FIELDS = {
    "gpu__time_duration.sum": "us",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "l1",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
}
"""Field of a kernel's row by ncu's metric: us of time, else a share of the peak, 0 to 1."""

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = """barrier branch_resolve dispatch_stall gmma lg_throttle long_scoreboard math_pipe_throttle membar
mio_throttle no_instruction not_selected short_scoreboard sleeping wait""".split()
"""Why a warp waits: cycles for each instruction that is issued."""

MARK = "spin_kernel"
"""Of torch.cuda._sleep: it ends a call's kernels in the table."""

SLOW = ("simt",)
"""Kernels without counters: ncu replays a call many times, and the stock kernel takes milliseconds."""


class CountersError(RuntimeError):
    """ncu gave no table; one line."""


def asked(records: list[Record]) -> list[dict]:
    """The points of a run's sweep of `decode` that have times: the probe's options, with the variants timed there."""
    found: dict[str, dict] = {}
    for record in records:
        options = record.subject.options if record.subject else {}
        if record.kind == "sweep" and record.status == "pass" and "variants" in options and "shape" in options:
            timed = [point["variant"] for point in sweep_points([record]) if point["us"]]
            kept = {name: own for name, own in options["variants"].items() if name in timed}
            kept = {name: own for name, own in kept.items() if own["kernel"] not in SLOW}
            found[record.probe] = {**options, "variants": kept, "probe": record.probe, "seed": record.seed}
    return [point for point in found.values() if point["variants"]]


def command(ncu: str, python: str, points: Path, made: Path, table: Path) -> list[str]:
    """What to run: ncu, its table as CSV, and `main` under it."""
    metrics = [*FIELDS, *(STALL.format(reason) for reason in STALLS)]
    own = ["--profile-from-start", "off", "--clock-control", "none", "--csv", "--log-file", str(table)]
    return [ncu, *own, "--metrics", ",".join(metrics), python, "-m", __name__, str(points), str(made)]


def main(points: Path, made: Path) -> None:
    """The process under ncu: writes {"calls": [[point, variant], ...], "left": {...}, "gpu"} to `made`."""
    import torch

    from .sweep import calls_of
    from .sweep_point import Size, draw, with_heads

    done, left = [], {}
    for index, given in enumerate(json.loads(points.read_text())):
        a, reasons = with_heads(given), {}
        inputs = draw(a, Size(1, *_slots(a)), given["seed"], "cuda")
        for name, calls in calls_of(a, inputs, reasons).items():
            torch.cuda.synchronize()
            counted(calls[0])
            done.append([index, name])
        left |= {f"{index} {name}": reason for name, reason in reasons.items()}
        torch.cuda.empty_cache()
    facts = {"calls": done, "left": left, "gpu": torch.cuda.get_device_name()}
    made.write_text(json.dumps(facts))


def _slots(a: dict) -> tuple[int, int]:
    """Rows of the window's and of the extra cache: those of the whole context, up to 2**18."""
    from ..kernels.sparse_mla.inputs import WINDOW_PAGE, extra_tokens
    from .sweep_point import shape_of

    lists = shape_of(a).inputs(a["context"])
    page = lists["extra_page"]
    tokens = extra_tokens(a["context"], lists["ratio"], page) if lists["topk"] else 0
    window = a["batch"] * WINDOW_PAGE if lists["window"] else WINDOW_PAGE
    return window, min(max(a["batch"] * tokens, page), 2**18 // page * page)


def counted(call: Callable[[], Any]) -> None:
    """One call and the mark behind it, in ncu's sight."""
    import torch

    torch.cuda.cudart().cudaProfilerStart()
    call()
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def kernels_of(table: str) -> list[dict]:
    """ncu's CSV as kernels in order of launch: kernel, grid, block, the FIELDS, stalls. Raises CountersError.

    A counter that the GPU has not ("n/a") is None.
    """
    lines = table.splitlines()
    if "ERR_NVGPUCTRPERM" in table:
        raise CountersError(
            "ncu: this user may not read the GPU's counters (ERR_NVGPUCTRPERM); an administrator can allow it "
            "(NVreg_RestrictProfilingToAdminUsers=0), or start the container with CAP_SYS_ADMIN"
        )
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = next((line for line in reversed(lines) if line.strip()), "nothing")
        raise CountersError(f"ncu: no table; it said: {said[:200]}")
    found: dict[int, dict] = {}
    rows = csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"'))))
    for row in rows:
        grid = [int(size) for size in row["Grid Size"].strip("()").split(",")]
        block = [int(size) for size in row["Block Size"].strip("()").split(",")]
        name = MARK if MARK in row["Kernel Name"] else row["Kernel Name"].split("(")[0]
        own = {"kernel": name, "grid": grid, "block": block[0] * block[1] * block[2]}
        kernel = found.setdefault(int(row["ID"]), own | {"stalls": {}})
        value = _number(row["Metric Value"])
        metric = row["Metric Name"]
        if metric in FIELDS:
            kernel[FIELDS[metric]] = _in_units(value, row["Metric Unit"])
        for reason in STALLS:
            if metric == STALL.format(reason) and value is not None:
                kernel["stalls"][reason] = value
    return [found[number] for number in sorted(found)]


def _number(text: str) -> float | None:
    return None if text == "n/a" else float(text.replace(",", ""))


def _in_units(value: float | None, unit: str) -> float | None:
    """us of a time, 0 to 1 of a percentage."""
    scale = {"%": 0.01, "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    return None if value is None else round(value * scale[unit], 6)


def shared_out(kernels: list[dict], calls: list[list]) -> dict[tuple[int, str], list[dict]]:
    """{(point, variant): its kernels}. Raises CountersError unless each call has kernels and a mark."""
    each: list[list[dict]] = [[]]
    for kernel in kernels:
        if kernel["kernel"] == MARK:
            each.append([])
        else:
            each[-1].append(kernel)
    if len(each) != len(calls) + 1 or each[-1]:
        raise CountersError(f"ncu: {len(each) - 1} calls counted, {len(calls)} made: cannot be told apart")
    for (_, variant), own in zip(calls, each, strict=False):
        if not own:
            raise CountersError(f"ncu: no kernel counted of a call of {variant}")
    return {(point, variant): own for (point, variant), own in zip(calls, each, strict=False)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
