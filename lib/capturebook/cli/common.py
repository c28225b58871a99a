"""What the commands share: exit statuses, progress on stderr, the answer on stdout, and how far a run got."""

import errno
import json
import os
import sys
from pathlib import Path

from .. import paths
from ..attribution import evidence as ev
from ..attribution.decision import Decision
from ..chain.folder import RunFolder
from ..records import Record, latest, printable
from .broken import broken

COMPLETE, BAD_INPUT, INCOMPLETE, UNEXPECTED = 0, 2, 3, 4


class InputError(ValueError):
    """Bad input: one line for each mistake. Nothing was started."""


def say(*lines: str) -> None:
    """Lines on stderr, a step's control characters spelt out; nowhere when it was closed from the start."""
    for line in lines:
        if sys.stderr is not None:
            _print(printable(line), "stderr")


class Progress:
    """`say` as a stream, for what writes whole lines."""

    def write(self, text: str) -> None:
        say(text.removesuffix("\n"))

    def flush(self) -> None:
        """Every line was flushed."""


def tell(*lines: str, as_json: bool = False) -> bool:
    """The answer for people, on stdout; on stderr with --json, where stdout holds JSON alone.

    A reader that has seen enough (`| head -1`) ends nothing, and nothing is said about it; False when it has gone.
    """
    if as_json:
        say(*lines)
        return True
    return all([_print(printable(line), "stdout", may_be_left=True) for line in lines])


def emit(result) -> None:
    """A result, as JSON on stdout."""
    _print(json.dumps(result, indent=1, allow_nan=False), "stdout")


def _print(text: str, name: str, may_be_left: bool = False) -> bool:
    """A text that cannot be written (closed, full) ends the command: SystemExit, so that all is cleared away. False for
    one whose reader has gone and `may_be_left`."""
    try:
        if getattr(sys, name) is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        print(_encodable(text, getattr(sys, name)), file=getattr(sys, name), flush=True)
    except OSError as exc:
        if may_be_left and isinstance(exc, BrokenPipeError):
            _to_null(getattr(sys, name))
            return False
        _lost(name, exc)
        sys.exit(INCOMPLETE)
    return True


def _encodable(text: str, stream) -> str:
    """As the stream's encoding has it: a strict ASCII one (LC_ALL=C) gets escapes for what it lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def flushed(status: int) -> int:
    """The exit status, once what argparse printed (--help) is written too: 3 when it cannot be."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as exc:
        _lost("stdout", exc)
        return INCOMPLETE
    return status


def _lost(name: str, exc: OSError) -> None:
    stream = getattr(sys, name)
    if stream is not None:
        _to_null(stream)
    if name == "stdout":
        say(f"capturebook: standard output: {exc.strerror}; the result was not written whole")


def _to_null(stream) -> None:
    """What is left in its buffer would fail once more when the interpreter ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def can_be_file(what: str, name: str) -> None:
    """Raises InputError for a name that the file system does not take (too long, a NUL) or let us look up."""
    if "\0" in name:
        raise InputError(f"{what}: given {name!r}: a NUL in it; allowed: a file's name")
    try:
        Path(name).exists()
    except OSError as exc:
        raise InputError(f"{what}: given {name!r}: {exc.strerror}; allowed: a file's name") from None


def opened(path: str) -> RunFolder:
    """A run folder to read. Raises InputError."""
    try:
        return RunFolder.open(paths.given(path))
    except (ValueError, FileNotFoundError) as exc:
        raise InputError(exc) from None


def incomplete(run: RunFolder) -> list[str]:
    """A step that breaks its contract or cannot be had at all, what could have run here and did not, controls that
    misbehaved: a line each."""
    records = run.records()[0]
    breaches = filter(None, map(ev.breach, latest(records).values()))
    lines = list(dict.fromkeys(link.text.partition("\n")[0] for link in breaches))
    lines += _never_there(list(latest(records).values()))
    for record in latest(records).values():
        failed = record.kind == "notebook" and record.status not in ("pass", "skipped")
        if failed or record.status in ("timeout", "not_run"):
            what = record.notebook if record.kind == "notebook" else record.arm.label() if record.arm else record.kind
            lines.append(f"{what}: {record.status.replace('_', ' ')}: {record.reason}")
    controls = Decision(run.info, records).controls
    if controls.state in ("cuda", "misbehaved", "contradict"):
        lines += controls.said
    return lines


def _never_there(records: list[Record]) -> list[str]:
    """Why no probe of the subject got past its build, where that is so: nothing was asked of the step itself."""
    steps = [r for r in records if r.kind in ("step", "trace") and r.role != "control"]
    why = [broken(r) for r in steps if r.status not in ("skipped", "not_run")]
    return list(dict.fromkeys(why)) if all(why) else []


def where(run: RunFolder) -> str:
    return paths.from_here(run.path)
