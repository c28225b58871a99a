"""From what is left of a finished probe to its record. The parent writes the end: a dead child cannot lie about it."""

import json
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

from ..records import Record
from .exceptions import subject_folders, tag_of
from .probe import Probe
from .scrub import relative, scrub_all


def stages(scratch: Path, nonce: str) -> list[dict]:
    """The stages a child has reached: [{"stage", "t"}], only lines with this run's nonce."""
    path = scratch / "stages"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return [line for line in lines if line["nonce"] == nonce]


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def record_of(probe: Probe, run, scratch: Path, end: dict, began: float, ended: float, log: str) -> Record:
    """One probe's record from its supervisor's end message, its stage file and its result file."""
    reached = stages(scratch, run.nonce)
    stage = "launch"
    for line in reached:
        if line["stage"] != "done":
            stage = line["stage"]
    timeline = [{"stage": line["stage"], "s": round(line["t"] - began, 3)} for line in reached]
    fields = scrub_all(_judge_end(probe, run.nonce, scratch, end, stage), str(run.path))
    if end.get("left_behind"):
        fields.setdefault("caveats", []).append(f"{end['left_behind']} processes were left behind and were ended")
    fields.setdefault("effective", {})["timeline"] = timeline
    record = Record(
        **common(probe, run),
        **{"stage": stage, **fields},
        exit={"code": end.get("code"), "signal": end.get("signal")},
        started=utc(began),
        ended=utc(ended),
        seconds=round(ended - began, 3),
        log=log,
    )
    return _without_configuration(record) if record.unread else record


def _without_configuration(record: Record) -> Record:
    """Such a record would not count when it is read: said here, since who asked for the probe looks for its record."""
    why = f": {record.root.type}: {record.root.text}".partition("\n")[0][:300] if record.root else ""
    reason = f"the configuration in force was not read back; it ended as {record.status} at {record.stage}{why}"
    return record.model_copy(update={"status": "not_run", "reason": reason, "samples": {}})


def common(probe: Probe, run) -> dict:
    """The fields that every record of a probe shares."""
    return {
        "run": run.name,
        "probe": probe.id,
        "nonce": run.nonce,
        "kind": probe.kind,
        "notebook": probe.notebook,
        "role": probe.role,
        "subject": probe.subject,
        "arm": probe.arm,
        "seed": probe.seed,
        "watched": probe.watched,
    }


def without_run(probe: Probe, run, status: str, reason: str, when: float) -> Record:
    """A record for a probe that was never started: `skipped` or `not_run`."""
    return Record(**common(probe, run), status=status, reason=reason, started=utc(when), ended=utc(when))


def _judge_end(probe: Probe, nonce: str, scratch: Path, end: dict, stage: str) -> dict:
    if end["why"] == "timeout":
        return {
            "status": "timeout",
            "reason": f"no end within {probe.deadline:g} s; it was at {stage}{_line(probe, scratch)}",
        }
    if end["why"] == "not_started":
        return {"status": "not_run", "reason": end["reason"], "stage": "none"}
    if end["why"] == "lost":
        return {"status": "fail", "reason": f"died: its supervisor was killed at {stage}"}
    path, died = scratch / "result.json", _died(end, stage)
    if not path.exists():
        return {"status": "fail", "reason": died + ("" if end["signal"] else ", without a result")}
    try:
        result = json.loads(path.read_text())
        if result["nonce"] != nonce or result["probe"] != probe.id:
            return {"status": "not_run", "reason": "the result file is another run's or another probe's"}
        if result["pid"] != end["pid"]:
            return {"status": "fail", "reason": f"{died}; the result is another process's, such as a forked copy's"}
        fields = result["fields"]
        Record(**common(probe, _Named(nonce)), **fields, started="", ended="")
    except (ValueError, KeyError, TypeError) as error:
        line = str(error).replace("\n", " ")[:300]
        return {"status": "not_run", "reason": f"the result file does not parse: {line}"}
    # A failure stands, with its chain, whatever came of the process afterwards; nothing else does.
    return {"status": "fail", "reason": died} if end["code"] != 0 and fields["status"] != "fail" else fields


def _died(end: dict, stage: str) -> str:
    if end["signal"] is not None:
        return f"died: signal {end['signal']} ({_name(end['signal'])}) at {stage}"
    return f"died: exit code {end['code']} at {stage}"


STACKS = "stacks"
"""File in a probe's scratch folder: its threads' stacks shortly before its deadline, as faulthandler writes them."""

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)


def _line(probe: Probe, scratch: Path) -> str:
    """The subject's line at which a process hung, if the stacks of its main thread name one."""
    path = scratch / STACKS
    if not probe.subject or not path.exists():
        return ""
    folders = subject_folders(probe.subject.target)
    for thread in path.read_text(errors="replace").split("\n\n"):
        frames = list(_FRAME.finditer(thread))
        if any(frame["function"] == "_run_job" for frame in frames):
            mine = [f for f in frames if tag_of(f["file"], folders) == "subject"]
            return "".join(f", in {f['function']}, {relative(f['file'])}:{f['line']}" for f in mine[:1])
    return ""


class _Named:
    """Stands for a run while a result is validated."""

    def __init__(self, nonce: str):
        self.name, self.nonce = "", nonce


def _name(number: int) -> str:
    return signal.Signals(number).name if number in signal.valid_signals() else "?"
