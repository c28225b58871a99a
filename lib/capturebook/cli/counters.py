"""`capturebook counters`: what bounds a sweep's points, by hardware counters, added to the run's records."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..chain.folder import RunFolder
from ..chain.runfiles import stamp
from ..params import validate
from ..probes.lease import gpu_uuid
from ..probes.processes import end_session
from ..records import Question, Record, Subject, probe_id
from .common import COMPLETE, INCOMPLETE, InputError, emit, opened, say


def add_command(add) -> None:
    p = add("counters", counters, "count with ncu what bounds the points of a run's sweep")
    p.add_argument("run", metavar="RUN", help="run folder whose sweep has times, made on this GPU by this code")
    p.add_argument("--ncu", default="ncu", metavar="PATH", help="Nsight Compute's command line tool")
    p.add_argument("--deadline", type=float, default=300.0, metavar="S", help="seconds it may take, 20 to start")
    p.add_argument("--json", action="store_true", help="what was counted, on stdout")


def counters(args) -> int:
    """A record of kind "counters" for each point, beside the times of the run. Exit 3 when ncu gave no table."""
    from ..measure import counters as own

    points = own.asked(opened(args.run).records()[0])
    if not points:
        raise InputError(f"run: {args.run} has no sweep point of sparse MLA with times")
    tool = shutil.which(args.ncu)
    if tool is None:
        raise InputError(f"--ncu: {args.ncu!r} is not on PATH; it comes with the CUDA toolkit (Nsight Compute)")
    if gpu_uuid() is None:
        raise InputError("needs a CUDA GPU")
    run = _held(args.run)
    try:
        kernels, facts = _counted(own, tool, points, args.deadline)
        found = own.shared_out(kernels, facts["calls"])
        said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
        version = re.findall(r"Version ([\d.]+)", said)[-1:]
        for index, point in enumerate(points):
            mine = {name: rows for (place, name), rows in found.items() if place == index}
            record = _record(run, point, mine, " ".join(["ncu", *version]), facts["gpu"])
            run.append(record)
    except own.CountersError as exc:
        say(str(exc))
        return INCOMPLETE
    finally:
        run.finish()
    number = sum(map(len, found.values()))
    say(f"{number} kernels of {len(points)} points counted; capturebook report {args.run} shows them")
    if args.json:
        emit([{**point, "kernels": {n: found[i, n] for i, n in found if i == k}} for k, point in enumerate(points)])
    return COMPLETE


def _held(path: str) -> RunFolder:
    """The run, held, if this GPU and this code are what made it. Raises InputError."""
    run = opened(path)
    try:
        return RunFolder.resume(
            run.path, validate(run.info["parameters"]), run.hypothesis(), Question(**run.info["question"])
        )
    except ValueError as exc:
        raise InputError(exc) from None


def _counted(own, tool: str, points: list[dict], deadline: float) -> tuple[list[dict], dict]:
    """(kernels in order of launch, what the process under ncu left). Raises CountersError."""
    with tempfile.TemporaryDirectory() as folder:
        asked, made, table = (Path(folder) / name for name in ("points.json", "made.json", "table.csv"))
        asked.write_text(json.dumps(points))
        line = own.command(tool, sys.executable, asked, made, table)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(line, start_new_session=True, **pipes)
        try:
            printed, complaints = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            raise own.CountersError(f"ncu: not done after {deadline:g} s (--deadline)") from None
        finally:
            end_session(process)
        text = table.read_text() if table.exists() else printed
        if made.exists() and process.returncode == 0:
            return own.kernels_of(text), json.loads(made.read_text())
        said = complaints.strip().splitlines()[-1:]  # of the process under ncu: the end of its traceback
        if said:
            raise own.CountersError(f"ncu: exit {process.returncode}: {said[0][:200]}")
        own.kernels_of(text)
        raise own.CountersError(f"ncu: exit {process.returncode}, and the calls were not made")


def _record(run: RunFolder, point: dict, kernels: dict, tool: str, gpu: str) -> Record:
    apart = ("probe", "seed")
    options = {name: value for name, value in point.items() if name not in apart}
    subject = Subject(target="capturebook.kernels.sparse_mla:decode", options=options)
    named = {name: point[name] for name in ("batch", "context", "shape", "heads", "cache")}
    now = stamp()
    return Record(
        run=run.name,
        nonce=run.nonce,
        probe=probe_id("counters", subject, None, point["seed"]),
        kind="counters",
        subject=subject,
        seed=point["seed"],
        status="pass" if kernels else "not_run",
        reason="" if kernels else "no variant of the point could be called",
        payload={"tool": tool, "gpu": gpu, **named, "kernels": kernels},
        started=now,
        ended=now,
    )
