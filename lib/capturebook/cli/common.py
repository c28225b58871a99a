"""What the commands share: exit statuses, lines on stderr, JSON on stdout, and how far a run got."""

import json
import sys
from pathlib import Path

from .. import paths
from ..attribution.decision import Decision
from ..chain.folder import RunFolder
from ..records import latest

COMPLETE, BAD_INPUT, INCOMPLETE, UNEXPECTED = 0, 2, 3, 4


class InputError(ValueError):
    """Bad input: one line for each mistake. Nothing was started."""


def say(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def emit(result) -> None:
    """A result, as JSON on stdout."""
    print(json.dumps(result, indent=1, allow_nan=False), flush=True)


def can_be_file(what: str, name: str) -> None:
    """Raises InputError for a name that the file system does not take (too long) or let us look up."""
    try:
        Path(name).exists()
    except OSError as exc:
        raise InputError(f"{what}: given {name!r}: {exc.strerror}; allowed: a file's name") from None


def opened(path: str) -> RunFolder:
    """A run folder to read. Raises InputError."""
    try:
        return RunFolder.open(path)
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None


def incomplete(run: RunFolder) -> list[str]:
    """What could have run on this machine and did not, and controls that misbehaved: one line each."""
    records = run.records()[0]
    lines = []
    for record in latest(records).values():
        failed = record.kind == "notebook" and record.status not in ("pass", "skipped")
        if failed or record.status in ("timeout", "not_run"):
            what = record.notebook if record.kind == "notebook" else record.arm.label() if record.arm else record.kind
            lines.append(f"{what}: {record.status.replace('_', ' ')}: {record.reason}")
    controls = Decision(run.info, records).controls
    if controls.state in ("cuda", "misbehaved", "contradict"):
        lines += controls.said
    return lines


def where(run: RunFolder) -> str:
    return paths.shown(run.path)
