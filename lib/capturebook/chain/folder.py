"""The run folder: one run's parameters, question, records and logs, with one writer at a time."""

import fcntl
import os
import platform
import secrets
import shutil
from pathlib import Path

from .. import paths, provenance
from ..records import Question, Record, append, latest, probe_id, read
from . import logs
from .changes import first_change
from .intact import damage
from .runfiles import RunFolderError, read_object, refuse_name, stamp, usable, write_json

SCHEMA = 1
DECIDED = ("pass", "wrong", "fail")
"""Outcomes that a resumed run keeps."""

RUN, NONCE, PYTHON = "CAPTUREBOOK_RUN", "CAPTUREBOOK_NONCE", "CAPTUREBOOK_PYTHON"
"""Set by the chain for its notebooks: the run folder it holds, the run's nonce, the interpreter it runs with."""


def notebook_probe(notebook: str) -> str:
    """The probe id of a notebook's own record."""
    return probe_id("notebook", None, None, 0, name=notebook)


class RunFolder:
    """One run on disk. Reading needs no lock; `create` and `resume` take it, and `close` gives it back.

    `info` is run.json: schema_version, run, nonce, started, ended, parameters, question, plan, code, provenance and
    invocations (one entry for the first start and each resume: started, ended, pid, notebooks).
    `notebook` is written into the records appended through this object that name none.
    """

    def __init__(self, path: Path, info: dict):
        self.path = path
        self.info = info
        self.notebook = ""
        self._lock: int | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        parameters,
        hypothesis: dict,
        question: Question,
        plan: list = (),
        facts: dict | None = None,
    ) -> "RunFolder":
        """Make a run: hypothesis.json and environment.json first, run.json last. The caller holds it from here on.

        `parameters` is a validated Params, `facts` what provenance.collect() returned (else collected here).
        Raises RunFolderError when `path` is a file, is not empty or cannot be written, or when another
        process is making a run there.
        """
        path = paths.resolve(path)
        refuse_name(path)
        facts = provenance.collect() if facts is None else facts
        with usable(path):
            return cls._made(path, parameters, hypothesis, question, plan, facts)

    @classmethod
    def _made(cls, path: Path, parameters, hypothesis: dict, question: Question, plan: list, facts: dict):
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"run_dir: {paths.shown(path)!r} is a file; allowed: a new or an empty folder")
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, {})
        run._acquire()
        begun = False
        try:
            if any(path.iterdir()):
                what = "already holds a run" if (path / "run.json").exists() else "is not empty and holds no run.json"
                raise RunFolderError(f"run_dir: {paths.shown(path)!r} {what}; allowed: a new or an empty folder")
            begun = True
            (path / "logs").mkdir()
            (path / "notebooks").mkdir()
            write_json(path / "hypothesis.json", hypothesis)
            write_json(path / "environment.json", facts)
            run.info = {
                "schema_version": SCHEMA,
                "run": path.name,
                "nonce": secrets.token_hex(8),
                "started": stamp(),
                "ended": None,
                "parameters": parameters.model_dump(),
                "question": question.model_dump(),
                "plan": list(plan),
                "code": facts["code"],
                "provenance": facts,
                "invocations": [],
            }
            run._begin_invocation()
        except BaseException:
            if begun:  # half a run would be in the way of the next start
                for made in path.iterdir():
                    shutil.rmtree(made) if made.is_dir() else made.unlink()
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run, to read. Raises RunFolderError when there is none, or run.json is damaged."""
        path = paths.resolve(path)
        refuse_name(path)
        where = path / "run.json"
        if not os.path.isfile(where):
            raise RunFolderError(f"run_dir: {paths.shown(path)!r} holds no run (no run.json)")
        info = read_object(where)
        if info.get("schema_version") != SCHEMA:
            given = info.get("schema_version")
            raise RunFolderError(f"run_dir: {paths.shown(where)} has schema {given}; this version reads {SCHEMA}")
        if said := damage(info):
            raise RunFolderError(f"run_dir: {paths.shown(where)} is damaged: {said}")
        run = cls(path, info)
        run._refuse_folders("records.jsonl")
        return run

    @classmethod
    def resume(
        cls, path: str | Path, parameters, hypothesis: dict, question: Question, facts: dict | None = None
    ) -> "RunFolder":
        """An existing run, to go on with under its nonce; the caller holds it from here on.

        Raises RunFolderError naming the first of parameter, hypothesis, question, code, GPU, driver, torch or triton
        that is not the recorded one, or when another process holds the run.
        """
        facts = provenance.collect() if facts is None else facts
        run = cls.open(path)
        with usable(run.path):
            return run._resumed(parameters, hypothesis, question, facts)

    def _resumed(self, parameters, hypothesis: dict, question: Question, facts: dict) -> "RunFolder":
        self._acquire()
        try:
            self.info = self.open(self.path).info
            if changed := first_change(self.info, self.hypothesis(), parameters, hypothesis, question, facts):
                raise RunFolderError(f"run_dir: {paths.shown(self.path)!r} was made with another {changed}")
            self._refuse_folders("verdict.json", "report.html")
            self.clear_scratch()
            logs.scrub_logs(self.path)
            self.info["ended"] = None
            self._begin_invocation()
        except BaseException:
            self.close()
            raise
        return self

    @property
    def name(self) -> str:
        return self.info["run"]

    @property
    def nonce(self) -> str:
        return self.info["nonce"]

    @property
    def held(self) -> bool:
        """Whether this object holds the run; in a notebook under the chain, the chain does."""
        return self._lock is not None

    @property
    def records_path(self) -> Path:
        return self.path / "records.jsonl"

    @property
    def invocation(self) -> dict:
        """The latest start or resume, as run.json holds it."""
        return self.info["invocations"][-1]

    def hypothesis(self) -> dict:
        """hypothesis.json: what was predicted before the first probe. Raises RunFolderError when it is damaged."""
        return read_object(self.path / "hypothesis.json")

    def append(self, record: Record) -> None:
        """Append a record, flushed to disk."""
        if self.notebook and not record.notebook:
            record = record.model_copy(update={"notebook": self.notebook})
        append(self.records_path, record)

    def records(self) -> tuple[list[Record], list[str]]:
        """Records of this run that count, in file order, and one line of text for each that does not (`records.read`).

        Raises RunFolderError when records.jsonl cannot be read.
        """
        try:
            whole, torn = read(self.records_path)
        except OSError as exc:
            raise RunFolderError(f"run_dir: {paths.shown(self.records_path)} cannot be read: {exc.strerror}") from None
        mine = [r for r in whole if r.nonce == self.nonce]
        torn += [
            f"{r.kind} record {r.probe} carries another run's nonce; it does not count"
            for r in whole
            if r.nonce != self.nonce
        ]
        return mine, torn

    def decided(self) -> dict[str, Record]:
        """The last record of each probe that a resumed run keeps, by probe id. Controls and notebooks are repeated."""
        kept = latest([r for r in self.records()[0] if r.role != "control" and r.kind != "notebook"])
        return {probe: record for probe, record in kept.items() if record.status in DECIDED}

    def write_json(self, name: str, obj) -> Path:
        """Write one JSON file of the run, whole or not at all."""
        write_json(self.path / name, obj)
        return self.path / name

    def save(self) -> None:
        """Write `info` back to run.json."""
        self.write_json("run.json", self.info)

    def note(self, **facts) -> None:
        """Write `facts` into this start's or resume's entry of run.json."""
        self.invocation.update(facts)
        self.save()

    def finish(self, **facts) -> None:
        """Stamp the end, note `facts` (e.g. stopped="SIGTERM") with this invocation, and give the folder back.

        Nothing of the run may work any more: its logs are rewritten without this machine's folders.
        """
        logs.scrub_logs(self.path)
        ended = stamp()
        self.info["ended"] = ended
        self.note(ended=ended, **facts)
        self.close()

    def clear_scratch(self) -> None:
        """Remove what killed pools left; for the holder of the run, when no pool of it works."""
        for scratch in self.path.glob("probes-*"):
            shutil.rmtree(scratch, ignore_errors=True)

    def tidy(self) -> None:
        """What a killed holder did not come to: scratch removed, folders taken out of the logs. Not while one works."""
        if self._locked():
            self.clear_scratch()
            logs.scrub_logs(self.path)
            self.close()

    def close(self) -> None:
        """Give the folder back without stamping an end."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _acquire(self) -> None:
        if not self._locked():
            raise RunFolderError(f"run_dir: {paths.shown(self.path)!r} is in use by {self._holder()}")

    def _locked(self) -> bool:
        """Hold the folder itself by flock, if nobody does: nothing is left behind, and a killed holder lets go."""
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _holder(self) -> str:
        invocations = self.info.get("invocations", [])
        if invocations and not invocations[-1]["ended"]:
            return f"process {invocations[-1]['pid']}, since {invocations[-1]['started']}"
        return "another process"

    def _refuse_folders(self, *names: str) -> None:
        for name in names:
            where = self.path / name
            if os.path.lexists(where) and not where.is_file():
                other = "device, pipe or socket" if where.exists() else "link that leads nowhere"
                what = "folder" if where.is_dir() else other
                raise RunFolderError(f"run_dir: {paths.shown(where)} is a {what}; allowed: a file")

    def _begin_invocation(self) -> None:
        entry = {"started": stamp(), "ended": None, "pid": os.getpid(), "python": platform.python_version()}
        self.info["invocations"].append(entry)
        self.save()
