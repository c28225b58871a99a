"""How a launch came out, and its record."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .. import paths
from ..chain.runfiles import stamp
from ..records import Link, Record, probe_id
from . import classes
from .redact import Redactor
from .stages import NotHeld, Stages, asked
from .store import Entry


@dataclass
class Outcome:
    """Status as records have it; `klass` is C1 to C18 or "", `todo` what to do, `error` a CUDA code, its name and the
    line that says so, `chain` the exceptions of its log, `samples` times in microseconds."""

    status: str
    reason: str = ""
    klass: str = ""
    todo: str = ""
    error: tuple[int, str, str] | None = None
    chain: list[Link] = field(default_factory=list)
    payload: dict = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, exc: NotHeld) -> "Outcome":
        return cls(exc.status, exc.seen, exc.klass, exc.todo)

    def lines(self, stage: str) -> list[str]:
        """For people: what happened and in which stage, its class, what to do."""
        head = self.status.replace("_", " ") + (f" in stage {stage}" if stage else "")
        said = [f"{head}: {self.reason}" if self.reason else head]
        if self.klass:
            said.append(f"{self.klass}: {classes.title(self.klass)}")
        return [*said, f"what to do: {self.todo}"] if self.todo else said


def record_of(
    entry: Entry,
    stages: Stages,
    outcome: Outcome,
    caveats: list[str],
    started: str,
    redactor: Redactor,
    did: str = "launch",
) -> Record:
    """The record of what was done with a launch (`did`: launch, attach, load or stop), appended to its own
    records.jsonl. It names no host, user or folder of this machine."""
    info = entry.info
    where = "ssh" if info["host"] else "here"
    failed_stage = next((stage.name for stage in stages.done if stage.state == "failed"), "")
    if outcome.status != "pass" and not outcome.todo:
        outcome.todo = f"see its log: {paths.shown(entry.log_path)}"
    resolved = info["resolved"] or {}
    payload = {
        "launch": entry.id,
        "name": info["name"],
        "did": did,
        "where": where,
        "class": outcome.klass,
        "todo": outcome.todo,
        "failed_stage": failed_stage,
        "stages": stages.as_dicts(asked(did, serves=not info["file"].get("result"))),
        "port": resolved.get("port"),
        **outcome.payload,
    }
    chain = outcome.chain
    if outcome.error and not chain:
        code, name, text = outcome.error
        chain = [Link(type="logged", module="", code=code, name=name, text=text)]
    record = Record(
        run=entry.id,
        probe=probe_id("launch", None, None, 0, name=info["name"], where=where),
        nonce=info["nonce"],
        kind="launch",
        status=outcome.status,
        reason=redactor.record(outcome.reason),
        stage="done" if outcome.status == "pass" else "launch",
        chain=[Link(**redactor.record(link.model_dump())) for link in chain],
        caveats=[redactor.record(text) for text in caveats],
        samples=outcome.samples,
        payload=redactor.record(payload),
        started=started,
        ended=stamp(),
        seconds=round(time.time() - datetime.fromisoformat(started).astimezone(UTC).timestamp(), 3),
        log="logs/program.log" if entry.log_path.exists() else "",
    )
    entry.append(record)
    for caveat in caveats:
        stages.say(f"caveat: {caveat}")
    phases = [entry for entry in payload.get("timeline", []) if entry["at"] is not None]
    if len(phases) > 1:
        began = ", ".join(f"{entry['phase']} {entry['at']:g}" for entry in phases)
        stages.say(f"timeline (s since its start): {began}; last seen {payload['seconds']:g}")
    stages.say("\n".join(outcome.lines(failed_stage)))
    return record
