"""One probe as a child process: its command line, how far it is, and its end with all that it started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_args

from ..attribution.plan import subject
from ..probes import processes
from ..probes.tempfolder import TempFolder
from ..records import Arm, Record, read
from ..records.record import Stage
from .explorer_browse import first_seen, plain, record_text, timeline
from .words import factor, outcome

STAGES = tuple(stage for stage in get_args(Stage) if stage != "none")
SAID = 8
GRACE = 5.0
"""Seconds that a stopped command gets to end its own probes after SIGTERM, before everything is killed."""


def probe_arguments(parameters: dict, arm: Arm, gpu: bool = True) -> list[str]:
    """What follows `capturebook` to probe one arm of `parameters["subject"]` (Params as a dict).

    Without a GPU an arm that captures nothing runs on the CPU. The arm's own variables win over the parameters'.
    """
    about = subject(parameters)
    factors = [factor(name, value) for name, (value, _) in arm.differences(Arm()).items() if name != "env"]
    arguments = ["probe", about.target, *(["--question", ",".join(factors)] if factors else [])]
    for name, value in about.options.items():
        arguments += ["--option", f"{name}={json.dumps(value)}"]
    for name, value in sorted({**parameters["env"], **arm.env}.items()):
        arguments += ["--env", f"{name}={value}"]
    for module in parameters["preload"]:
        arguments += ["--preload", module]
    arguments += ["--device", "cpu"] if not gpu and arm.capture == "none" else []
    return [*arguments, "--deadline", f"{parameters['deadline']:g}", "--arm-only"]


class ProbeRun:
    """A probe under way: a thread starts the command, polls it and ends it; `on_change()` is called from that thread.

    The command runs under chain.guard, which ends it with all its descendants when we stop it or are killed ourselves,
    and makes the run folder `run`, where the pool keeps a stage file while a probe runs and its record afterwards.
    `state` is starting, running, stopping, ended, stopped, or broken (see `trouble`). `stages` maps each stage reached
    to the second it began, counted from the probe's launch.
    """

    def __init__(self, command: list[str], run: Path, on_change=lambda: None, every: float = 0.25):
        self.command, self.run = command, run
        self.state, self.trouble = "starting", ""
        self.stages: dict[str, float] = {}
        self.lines: list[str] = []
        self.record: Record | None = None
        self.rc: int | None = None
        self.left_behind: list[str] = []
        self._on_change, self._every = on_change, every
        self._began, self._seconds = time.time(), None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="capturebook-probe", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ask for the end; the thread does it. Harmless when the probe has ended."""
        if self.active:
            self.state = "stopping"
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; whether that is so."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def active(self) -> bool:
        return self.state in ("starting", "running", "stopping")

    @property
    def seconds(self) -> float:
        return time.time() - self._began if self._seconds is None else self._seconds

    def _watch(self) -> None:
        try:
            with TempFolder("explorer") as folder:
                self._follow(Path(folder))
        except (OSError, subprocess.SubprocessError, ValueError) as exc:
            self.state, self.trouble = "broken", f"{type(exc).__name__}: {exc}"
        self._seconds = self.seconds
        self._on_change()

    def _follow(self, folder: Path) -> None:
        said, end = folder / "said", folder / "end"
        with open(said, "wb") as err, open(end, "wb") as out:
            # A session of its own: an interrupted kernel leaves the probe alone; Stop and the kernel's end do not.
            guard = subprocess.Popen(
                [sys.executable, "-m", "capturebook.chain.guard", *self.command],
                stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        if not self._stop.is_set():
            self.state = "running"
        while guard.poll() is None and not self._stop.wait(self._every):
            self._look(said)
            self._on_change()
        if guard.poll() is None:
            self._end(guard)
        guard.stdin.close()
        self._look(said)
        self._conclude(guard.returncode, end)

    def _end(self, guard: subprocess.Popen) -> None:
        self._on_change()
        for pid in processes.children(guard.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            guard.wait(GRACE)
        except subprocess.TimeoutExpired:
            guard.stdin.close()  # the guard then kills the rest of its tree
            guard.wait(GRACE)

    def _look(self, said: Path) -> None:
        """The lines said so far, and the stages of the probe that began last."""
        self.lines = plain(said.read_text(errors="replace")).splitlines()
        with contextlib.suppress(FileNotFoundError):  # the pool removes the folder of a probe that has ended
            files = [f for f in self.run.glob("probes-*/*/stages") if not f.parent.name.startswith("proof-")]
            newest = max(files, key=lambda f: f.stat().st_ctime, default=None)
            if newest:
                whole = [json.loads(line) for line in newest.read_text().split("\n")[:-1]]
                self.stages = first_seen((line["stage"], line["t"] - whole[0]["t"]) for line in whole)

    def _conclude(self, code: int, end: Path) -> None:
        """What the guard and the command left: exit status, survivors that were killed, and the record."""
        told = json.loads(end.read_text() or "null")
        if told is None:
            raise ValueError(f"the guard ended with {code} and left no word on the probe")
        self.rc, self.left_behind = told["rc"], told["left_behind"]
        records = [r for r in read(self.run / "records.jsonl")[0] if r.kind == "step" and r.role == "arm"]
        if records:
            self.record = records[-1]
            self.stages = timeline(self.record)
        self.state = "stopped" if self._stop.is_set() else "ended"

    def marks(self) -> dict[str, str]:
        """For each stage: "done", "now", "last" (where it ended without passing) or "ahead"."""
        reached = self.stages
        marks = {stage: "done" if stage in reached else "ahead" for stage in STAGES}
        newest = max(reached, key=reached.get, default=None)
        if newest and self.active:
            marks[newest] = "now"
        elif self.record and self.record.stage in marks and self.record.status != "pass":
            marks[self.record.stage] = "last"
        elif newest and not self.record:
            marks[newest] = "last"
        return marks

    def headline(self) -> str:
        """One line: what the probe does, or how it ended."""
        took = f"{self.seconds:.1f} s"
        if self.state == "broken":
            return f"broken after {took}: {self.trouble}"
        if self.active:
            now = [stage for stage, mark in self.marks().items() if mark == "now"]
            return f"{self.state}, {took}, {f'in {now[0]}' if now else 'its process is being made'}"
        if self.state == "stopped":
            return f"stopped by you after {took}; no process is left"
        if self.record:
            return f"{outcome(self.record)}, after {took}"
        said = self.lines[-1] if self.lines else "it said nothing"
        return f"ended with exit {self.rc} after {took} and left no record: {said}"

    def text(self) -> str:
        """The headline, stages, last words, and the record once there is one."""
        stages = ", ".join(f"{stage} {second:.1f} s" for stage, second in self.stages.items())
        lines = [f"probe     {self.headline()}"]
        if self.left_behind:
            lines.append(f"killed    left behind by the command: {', '.join(self.left_behind)}")
        if self.record:
            return "\n".join([*lines, f"run       {self.run.name}", record_text(self.record, self.run)])
        return plain("\n".join([*lines, f"stages    {stages or 'none reached'}", *self.lines[-SAID:]]))
