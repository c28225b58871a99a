"""Run notebooks headless, each in its own process tree, and say what became of each.

A notebook's status comes from the record that it appends itself, last, under the run's nonce; how its process ended
can only make that worse. papermill's metadata is never read.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from ..probes.scrub import scrub
from ..probes.tempfolder import TempFolder
from ..records import Record
from . import progress
from .folder import NONCE, PYTHON, RUN, RunFolder, notebook_probe
from .runfiles import stamp
from .stopping import Stop

CELL_TIMEOUT = 1800.0
"""Seconds that one cell may take by default: the longest probes of one notebook together."""

SLACK = 240.0
"""Seconds past a cell's timeout after which papermill itself is taken for hung; covers the kernel's start too."""


@dataclass
class Outcome:
    """What became of one notebook: the status and, unless it passed, the reason; `conclusion` in its own words."""

    notebook: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    conclusion: str = ""


class Chain:
    """Runs notebooks one after the other for one held run. A failed one does not stop the later ones.

    `parameters` is what papermill injects, `env` goes to the notebooks beside this process's variables, `out` gets
    the progress lines, and `cell_timeout` is in seconds.
    """

    def __init__(
        self,
        run: RunFolder,
        parameters: dict,
        env: dict | None = None,
        cell_timeout: float = CELL_TIMEOUT,
        out=sys.stderr,
    ):
        self.run_folder = run
        self.parameters = parameters
        self.env = env or {}
        self.cell_timeout = cell_timeout
        self.stop = Stop()
        self._tail = progress.Tail(run.path, out)

    def run(self, notebooks: list[Path]) -> list[Outcome]:
        """The outcomes, in order; fewer than notebooks when a signal stopped the chain (`stop.signum`)."""
        outcomes = []
        self.run_folder.note(notebooks=[source.stem for source in notebooks])
        with self.stop:
            for source in notebooks:
                if self.stop.signum is not None:
                    break
                outcomes.append(self._notebook(source))
        return outcomes

    def say(self, notebook: str, text: str) -> None:
        progress.write(self.run_folder.path, notebook, text)
        self._tail.pump()

    def _notebook(self, source: Path) -> Outcome:
        name, began, started = source.stem, time.monotonic(), stamp()
        self.say(name, "start")
        offset = self.run_folder.records_path.stat().st_size if self.run_folder.records_path.exists() else 0
        # The name is short because Unix sockets live below it.
        with TempFolder("nb") as folder:
            end = self._execute(source, Path(folder))
        own, torn = self._own_record(name, offset)
        status, reason = judge(own, torn, end)
        reason = scrub(reason, str(self.run_folder.path))
        outcome = Outcome(name, status, reason, round(time.monotonic() - began, 1))
        outcome.conclusion = own.payload.get("conclusion", "") if own and own.status == status else ""
        if own is None or own.status != status:
            self._record_for(outcome, started)
        if end["left_behind"]:
            self.say(
                name, f"ended {len(end['left_behind'])} processes that outlived it: {', '.join(end['left_behind'])}"
            )
        self.say(name, f"{status} after {outcome.seconds} s" + (f": {reason}" if reason and not own else ""))
        return outcome

    def _execute(self, source: Path, folder: Path) -> dict:
        """Run one notebook under its guard. Returns how it ended: execute's end file and the guard's last line."""
        run, root = self.run_folder.path, paths.repository()
        request = {
            # Relative, so that the executed notebook's metadata names no folder of this machine.
            "source": os.path.relpath(source, root),
            "output": os.path.relpath(run / "notebooks" / source.name, root),
            "parameters": self.parameters,
            "cell_timeout": int(self.cell_timeout),
            "state": str(folder / "state.json"),
            "end": str(folder / "end.json"),
        }
        for old in (run / "notebooks").glob(f"{source.stem}.*"):  # of an earlier start; it must not pass for this one's
            old.unlink()
        (folder / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-m", "capturebook.chain.execute", str(folder / "request.json")]
        with open(run / "logs" / f"{source.stem}.log", "ab") as log:
            guard = subprocess.Popen(
                [sys.executable, "-m", "capturebook.chain.guard", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=root,
                env=self._environment(folder),
                start_new_session=True,
            )
        end = {"outcome": "crashed", "cell": None, "left_behind": []}
        try:
            hung = self._wait(guard, folder / "state.json")
        finally:
            guard.stdin.close()
            said = guard.stdout.read()
            end["guard"] = guard.wait()
            guard.stdout.close()
            self.run_folder.clear_scratch()
            self._tail.pump()
        end |= json.loads(said) if said else {}
        state, last = folder / "state.json", folder / "end.json"
        end |= json.loads(state.read_text()) if state.exists() else {}
        end |= json.loads(last.read_text()) if last.exists() else {}
        if self.stop.signum is not None:
            end |= {"outcome": "stopped", "error": self.stop.name}
        elif hung:
            end |= {"outcome": "cell_timeout", "seconds": self.cell_timeout}
        return end

    def _wait(self, guard: subprocess.Popen, state: Path) -> bool:
        """Until the guard ends, a stop signal comes, or no cell has begun for too long (True)."""
        seen, since = None, time.monotonic()
        while guard.poll() is None and self.stop.signum is None:
            time.sleep(0.05)
            self._tail.pump()
            now = state.stat().st_mtime_ns if state.exists() else None
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > self.cell_timeout + SLACK:
                return True
        return False

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            **os.environ,
            **self.env,
            "CAPTUREBOOK_ROOT": str(paths.repository()),
            RUN: str(self.run_folder.path),
            NONCE: self.run_folder.nonce,
            PYTHON: sys.executable,
            # A user's own IPython start-up files and kernel specs are no part of the experiment.
            "IPYTHONDIR": str(folder / "i"),
            "JUPYTER_RUNTIME_DIR": str(folder / "r"),
            "JUPYTER_DATA_DIR": str(folder / "d"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }

    def _own_record(self, name: str, offset: int) -> tuple[Record | None, str]:
        """The notebook's record of this time, and what was wrong with lines that might have been it."""
        path = self.run_folder.records_path
        fresh = path.read_bytes()[offset:] if path.exists() else b""
        own, wrong = None, ""
        for number, text in enumerate(filter(None, fresh.split(b"\n")), 1):
            try:
                record = Record.from_line(text.decode())
            except ValueError:
                wrong = f"; record {number} of its records is torn ({len(text)} bytes)"
                continue
            if record.kind == "notebook" and record.notebook == name:
                if record.nonce == self.run_folder.nonce:
                    own = record
                else:
                    wrong = "; its record carries another run's nonce"
        return own, wrong

    def _record_for(self, outcome: Outcome, started: str) -> None:
        """The end stamp for a notebook that left none, or whose process ended worse than it said."""
        self.run_folder.append(
            Record(
                run=self.run_folder.name,
                probe=notebook_probe(outcome.notebook),
                nonce=self.run_folder.nonce,
                kind="notebook",
                notebook=outcome.notebook,
                status=outcome.status,
                reason=outcome.reason,
                payload={"notebook": outcome.notebook, "written_by": "chain", "conclusion": ""},
                started=started,
                ended=stamp(),
                seconds=outcome.seconds,
                log=f"logs/{outcome.notebook}.log",
            )
        )


def judge(own: Record | None, torn: str, end: dict) -> tuple[str, str]:
    """Status and reason of a notebook, from its own record and how its process ended."""
    where = "" if end.get("cell") is None else f" in cell {end['cell']} ({end.get('line', '')})"
    ended = end["outcome"]
    if ended == "stopped":
        return "not_run", f"stopped by {end['error']}{where}"
    if own is not None and (ended == "done" or own.status != "pass"):
        return own.status, own.reason
    after = " after its conclusion" if own else ""
    if ended == "cell_timeout":
        return "timeout", f"no end after {end['seconds']:g} s{where}{after}"
    if ended == "dead_kernel":
        code = end["kernel_exit"]
        how = "its kernel died" if code is None else _exit_words("its kernel", code)
        return "fail", how + where + after
    if ended == "cell_error":
        return "fail", f"{end['error']}{where}{after}"
    if ended == "exited":
        return "fail", f"a cell ended the kernel: {end['error']}{where}{after}"
    if ended == "done":
        return "fail", f"all cells ran, but it left no record{torn}"
    how = f": {end['error']}" if "error" in end else f", {_exit_words('the executor', end.get('rc', end['guard']))}"
    return "fail", f"papermill did not finish{where}{how}{after}"


def _exit_words(who: str, code: int) -> str:
    return f"{who} was killed by signal {-code}" if code < 0 else f"{who} exited by itself with code {code}"
