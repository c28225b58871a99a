"""What a notebook's cells call: start, pool, outcomes, controls, say, conclude."""

import os
import sys
import time
from pathlib import Path

from .. import params as parameters
from .. import paths
from ..attribution import Verdict
from ..attribution import plan as attribution_plan
from ..probes import caches
from ..records import Record, latest
from . import plan, progress
from .folder import NONCE, PYTHON, RUN, RunFolder, notebook_probe
from .runfiles import claim, earlier, stamp

FEW = 3
"""Probes that a line names one by one."""

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
        raise parameters.ParameterError("\n".join(map(parameters.unknown, unknown)))
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
        path = paths.resolve(self.params.run_dir) if self.params.run_dir else claim(self.params.preset)
        if (path / "run.json").exists():
            run = RunFolder.resume(path, self.params, self.hypothesis, self.question)
        else:
            run = RunFolder.create(path, self.params, self.hypothesis, self.question, planned)
        run.note(notebooks=[self.notebook])
        return run

    @property
    def gpu(self) -> str:
        """Name of the GPU that the run has, or "" for none."""
        return (self.run.info["provenance"]["gpu"] or {}).get("name", "")

    def say(self, text: str) -> None:
        """One line of progress: in the cell's output and in the run's logs/progress.log, which the chain shows live."""
        print(progress.write(self.run.path, self.notebook, text), flush=True)

    def pool(self):
        """This session's ProbePool, entered on first use and left by conclude()."""
        if self._pool is None:
            from ..probes import ProbePool

            self._pool = ProbePool(self.run, self.params.parallel, on_event=self.say).__enter__()
        return self._pool

    def outcomes(self, probes: list, before: tuple = ()) -> list[Record]:
        """The records of `probes`, in their order; runs those not yet decided in this run.

        Controls are run once for each start or resume, by the first notebook that asks. before: those of `probes` that
        only compile for the others: a folder that came here without its caches has them run again, if others have to.
        """
        done = latest(plan.standing(self.run))
        missing = [probe for probe in probes if probe.id not in done]
        since = self.run.invocation["started"]
        kept = [probe for probe in probes if probe.id in done and earlier(done[probe.id].started, since)]
        if kept:  # by an earlier start; another notebook of this one asks for the same arms again as a matter of course
            self.say(f"{len(kept)} of {len(probes)} probes are already recorded in this run")
        if missing and not (self.run.path / caches.STORE).is_dir():
            missing = list({probe.id: probe for probe in [*before, *missing]}.values())
        if missing:
            self._say_what_compiles(missing)
            self.pool().run(missing)
        by_id = latest(self.run.records()[0])
        return [by_id[probe.id] for probe in probes]

    def _say_what_compiles(self, probes: list) -> None:
        """torch.compile of a step takes up to its deadline, in which nothing else is said."""
        compiling = [p for p in probes if p.arm and p.arm.compile != "none" and (self.gpu or p.kind == "trace")]
        if compiling:
            what = "; ".join(p.name for p in compiling) if len(compiling) <= FEW else f"{len(compiling)} arms"
            each = " each" if len(compiling) > 1 else ""
            self.say(f"compiling {what} (up to {max(p.deadline for p in compiling):g} s{each})")

    def controls(self) -> list[Record]:
        """The records of this run's controls."""
        return self.outcomes(attribution_plan.controls(self.params))

    def pursue(self) -> Verdict:
        """Run whatever the verdict still needs (repeats, scrubbed arms, the fix and its gain); the verdict then."""
        plan.pursue(self.run, self.pool(), self.say)
        return plan.verdict(self.run)

    def verdict(self) -> Verdict:
        """The verdict from the records so far, also written to verdict.json."""
        found = plan.verdict(self.run)
        self.run.write_json("verdict.json", found.to_json())
        return found

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
