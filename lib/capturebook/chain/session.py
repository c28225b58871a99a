"""What a notebook's cells call: start, pool, outcomes, controls, say, conclude."""

import os
import sys
import time
from datetime import datetime
from pathlib import Path

from .. import params as parameters
from .. import paths
from ..records import Record, latest
from . import plan, progress
from .folder import NONCE, PYTHON, RUN, RunFolder, fresh_name, notebook_probe, stamp

_current: "Session | None" = None


def start(notebook: str, names: dict) -> "Session":
    """Open this notebook's part of a run. `notebook` is its file's stem, `names` its globals().

    Under the chain that is the chain's run; alone, the run that `run_dir` names (made if new, resumed if it is there)
    or a new one under outputs/. Starting again in the same kernel ends the earlier session.

    Raises ParameterError for names nobody declared and values out of range, RunFolderError when the run is in use or
    was made with other code, parameters or hardware, NotebookError when the chain runs with another interpreter.
    """
    global _current
    if _current is not None:
        _current.close()
        _current = None
    unknown = parameters.unknown_names(names)
    if unknown:
        allowed = ", ".join(parameters.Params.model_fields)
        raise parameters.ParameterError(f"{unknown[0]}: nobody declared this parameter; allowed: {allowed}")
    given = {name: names[name] for name in parameters.Params.model_fields if name in names}
    _current = Session(notebook, parameters.validate(given))
    return _current


class NotebookError(RuntimeError):
    """The notebook cannot take part in this run. One line says why."""


class Session:
    """One notebook's part of a run: `.params`, `.run` (RunFolder), `.hypothesis` (dict), `.question`, and the calls."""

    def __init__(self, notebook: str, params):
        self.notebook = notebook
        self.params = params
        self.started, self._clock = stamp(), time.monotonic()
        self.hypothesis, self.question, planned = plan.ask(params)
        self.chained = RUN in os.environ
        self._pool = None
        if self.chained:
            self.run = RunFolder.open(os.environ[RUN])
            if self.run.nonce != os.environ.get(NONCE):
                raise NotebookError(f"{NONCE} is not the nonce of {paths.shown(self.run.path)}: the run was replaced")
        else:
            self.run = self._own_run(planned)
        self.run.notebook = notebook
        expected = os.environ.get(PYTHON, sys.executable)
        if sys.executable != expected:
            reason = f"the kernel runs {shown_python(sys.executable)}, the chain {shown_python(expected)}"
            self._record("not_run", reason, "")
            self.close()
            raise NotebookError(reason)
        self.say(f"run {paths.shown(self.run.path)}")

    def _own_run(self, planned: list) -> RunFolder:
        where = self.params.run_dir or Path("outputs") / fresh_name(self.params.preset)
        path = paths.resolve(where)
        if (path / "run.json").exists():
            return RunFolder.resume(path, self.params, self.hypothesis, self.question)
        return RunFolder.create(path, self.params, self.hypothesis, self.question, planned)

    def say(self, text: str) -> None:
        """One line of progress: in the cell's output and in the run's logs/progress.log, which the chain shows live."""
        print(progress.write(self.run.path, self.notebook, text), flush=True)

    def pool(self):
        """This session's ProbePool, entered on first use and left by conclude()."""
        if self._pool is None:
            from ..probes import ProbePool

            self._pool = ProbePool(self.run, on_event=self._event).__enter__()
        return self._pool

    def outcomes(self, probes: list) -> list[Record]:
        """The records of `probes`, in their order; runs only those not yet decided in this run."""
        decided = self.run.decided()
        missing = [probe for probe in probes if probe.id not in decided]
        if len(missing) < len(probes):
            self.say(f"{len(probes) - len(missing)} of {len(probes)} probes are already recorded in this run")
        if missing:
            self.pool().run(missing)
        by_id = latest(self.run.records()[0])
        return [by_id[probe.id] for probe in probes]

    def controls(self) -> list[Record]:
        """The records of the controls: run by the first notebook of this start or resume that asks, then reused."""
        probes = plan.controls(self.params)
        since = self.run.invocation["started"]
        fresh = {r.probe: r for r in self.run.records()[0] if r.role == "control" and not earlier(r.started, since)}
        missing = [probe for probe in probes if probe.id not in fresh]
        if missing:
            self.pool().run(missing)
            fresh = latest(self.run.records()[0])
        return [fresh[probe.id] for probe in probes]

    def conclude(self, status: str, text: str) -> Record:
        """End the notebook: its own record, appended last. The chain believes this record, and only it.

        `status` is pass, fail, not_run or skipped; `text` is the conclusion, computed from data.
        """
        self._leave_pool()
        self.say(f"{status}: {text}")
        record = self._record(status, "" if status == "pass" else text, text)
        self.close()
        return record

    def close(self) -> None:
        """End the session without a record: what a notebook stopped in the middle amounts to."""
        self._leave_pool()
        if self.run.held:
            self.run.finish()

    def _leave_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.__exit__(None, None, None)

    def _event(self, text: str) -> None:
        self.say(text)

    def _record(self, status: str, reason: str, conclusion: str) -> Record:
        record = Record(
            run=self.run.name,
            probe=notebook_probe(self.notebook),
            nonce=self.run.nonce,
            kind="notebook",
            notebook=self.notebook,
            status=status,
            reason=reason,
            stage="done",
            payload={
                "notebook": self.notebook,
                "executable": shown_python(sys.executable),
                "conclusion": conclusion,
            },
            started=self.started,
            ended=stamp(),
            seconds=round(time.monotonic() - self._clock, 3),
        )
        self.run.append(record)
        return record


def shown_python(executable: str) -> str:
    """An interpreter as a record may hold it: relative to the repository, else its environment's last parts."""
    path = Path(executable)
    root = paths.repository()
    return str(path.relative_to(root)) if path.is_relative_to(root) else "/".join(path.parts[-3:])


def earlier(stamp_a: str, stamp_b: str) -> bool:
    """Whether one record stamp is before another."""
    return datetime.fromisoformat(stamp_a) < datetime.fromisoformat(stamp_b)
