"""The probe's own process: private caches, a log, a stage file, and one result file written last."""

import faulthandler
import importlib
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import outcome
from .probe import Probe


@dataclass
class Context:
    """What a job gets. `fields` are Record fields gathered so far; they are kept when the job raises."""

    probe: Probe
    run: str
    scratch: Path
    nonce: str
    fields: dict[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)
    """What the pool found for this probe: {"winners": tuning of a feeder, "caches": files in each cache folder}."""
    pid: int = field(default_factory=os.getpid)
    """The probe's own process. A step that forks may send its copy on through the driver: that is not the probe."""

    @property
    def args(self) -> dict[str, Any]:
        return self.probe.args

    @property
    def seed(self) -> int:
        return self.probe.seed

    def stage(self, name: str) -> None:
        """Say that a stage begins: the parent shows it, and a death is placed in it. Of a forked copy: nothing."""
        if os.getpid() != self.pid:
            return
        line = json.dumps({"stage": name, "t": time.time(), "nonce": self.nonce})
        with open(self.scratch / "stages", "a") as file:
            file.write(line + "\n")


def main(request: dict) -> None:
    """Run the job of a request and exit. Never returns; exit code 0 whenever the result file is whole."""
    scratch = Path(request["scratch"])
    _own_session(request["log"])
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
    probe = Probe.from_json(request["probe"])
    ctx = Context(probe=probe, run=request["run"], scratch=scratch, nonce=request["nonce"], given=request["given"])
    ctx.stage("launch")
    _say_where_it_hangs(scratch, probe.deadline)
    if request["cwd"]:
        os.chdir(request["cwd"])
    result = _run_job(ctx)
    if os.getpid() != ctx.pid:
        print("a forked copy of the probe came to its end; the result is not its to write", flush=True)
        os._exit(1)
    ctx.stage("done")
    _write(scratch / "result.json", {"nonce": ctx.nonce, "probe": probe.id, "pid": ctx.pid, "fields": result})
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown can hang or crash in a poisoned CUDA context, after the result is safe.
    os._exit(0)


def _own_session(log: str) -> None:
    """Three descriptors redirected: no input, everything printed goes to the log."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    sys.stdin = open(0, closefd=False)
    sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")


def _say_where_it_hangs(scratch: Path, deadline: float) -> None:
    """Shortly before the deadline the stacks of all threads are written down, by a thread that needs no GIL for it."""
    faulthandler.dump_traceback_later(0.95 * deadline, file=open(scratch / outcome.STACKS, "w"))


def _run_job(ctx: Context) -> dict:
    """The job's fields; an exception that escapes, SystemExit too, is a `fail` with its whole chain."""
    from .exceptions import chain_of, subject_folders

    try:
        if ctx.probe.subject:
            ctx.folders = subject_folders(ctx.probe.subject.target)
        module, _, name = ctx.probe.job.partition(":")
        fields = getattr(importlib.import_module(module), name)(ctx)
        return {**ctx.fields, **fields}
    except BaseException as error:
        import traceback

        traceback.print_exc()
        links = chain_of(error, ctx.run, ctx.folders)
        return {**ctx.fields, "status": "fail", "chain": [link.model_dump() for link in links]}


def _write(path: Path, data: dict) -> None:
    """Atomic: a half-written result never has the final name."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, allow_nan=False))
    os.replace(part, path)


def prove(ctx: Context) -> dict:
    """Job: allocate and compute on the GPU, so that a poisoned server is found before its first real probe."""
    import torch

    if not torch.cuda.is_available():
        return {"status": "pass", "payload": {"device": "cpu", "torch": torch.__version__}}
    total = torch.ones(1024, device="cuda").sum().item()
    if total != 1024.0:
        return {"status": "wrong", "reason": f"the sum of 1024 ones on the GPU is {total}"}
    payload = {
        "device": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    return {"status": "pass", "payload": payload}
