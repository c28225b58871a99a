"""Read a finished run as plain text: its records as a table, one record in full, the end of its log."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from ..records import Arm, Frame, Link, Record, read
from .words import STATUSES, short, tally, where

LOG_LINES = 30
EVENTS = 12
_LOG_BYTES = 32 * 1024
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal sequences and control characters: a subject's log may hold anything, and a terminal would act on them."""


def run_names(outputs: Path) -> list[str]:
    """Runs under `outputs` that hold more than notebooks' own records, the one written to last first."""
    found = [path for path in outputs.glob("*/records.jsonl") if (path.parent / "run.json").exists() and _probed(path)]
    return [path.parent.name for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)]


def _probed(records: Path) -> bool:
    with open(records, "rb") as file:
        return any(b'"kind":"notebook"' not in line for line in file)


def record_row(record: Record, base: Arm | None = None) -> str:
    """One line of the table: what came of it, kind, probe, and what was asked, as it differs from `base`."""
    kind = record.kind if record.role == "arm" else f"{record.kind}/{record.role}"
    came = f"{STATUSES[record.status][0]} {record.status}"
    came += f" {short(record)}" if record.status == "fail" and record.root else ""
    return plain(f"{came:<12}  {kind:<14}  {record.probe:<12}  {_asked(record, base)}").replace("\n", " ")


def _asked(record: Record, base: Arm | None = None) -> str:
    """The arm where there is one; else what the record's kind is about."""
    if record.arm and record.role != "control":
        return where(record.arm, base)
    about = [str(record.payload[name]) for name in ("kernel", "target", "config", "batch") if name in record.payload]
    return " ".join(about) or (record.subject.target if record.subject else record.notebook or "-")


def record_text(record: Record, run: Path | None = None) -> str:
    """One record in full. The exception chain goes from the outermost to the root; `run` adds the log's end."""
    lines = [
        f"probe     {record.probe}  {record.kind}, {record.role}",
        f"asked     {_asked(record)}",
        f"status    {record.status}, stage {record.stage}, {record.seconds:.1f} s",
    ]
    if record.subject:
        lines.insert(1, f"subject   {record.subject.target} {record.subject.options or ''}".rstrip())
    stages = timeline(record)
    if stages:
        lines.append("stages    " + ", ".join(f"{name} {second:.1f} s" for name, second in stages.items()))
    if record.reason:
        lines.append(f"reason    {record.reason}")
    lines += [f"caveat    {caveat}" for caveat in record.caveats]
    lines += ["chain     " + ("outermost first" if record.chain else "no exception")]
    for number, link in enumerate(record.chain, 1):
        lines += [f"  {number}. {_link(link)}", *(f"     at {_frame(frame)}" for frame in link.frames[-1:])]
    lines += _witnesses(record)
    bad = [check for check in record.checks if not check.ok]
    lines += [f"checks    {len(record.checks) - len(bad)} of {len(record.checks)} within tolerance"]
    lines += [f"  {c.call} {c.output}: error {c.error}, tolerance {c.tolerance}" for c in bad]
    if run is not None:
        lines += ["log       " + (record.log or "none"), *(f"  {line}" for line in log_tail(run, record))]
    return plain("\n".join(lines))


def timeline(record: Record) -> dict[str, float]:
    """The second at which each stage of a probe first began, as its supervisor saw it; empty where none was kept."""
    return first_seen((entry["stage"], entry["s"]) for entry in record.effective.get("timeline", []))


def first_seen(stages: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Each stage with its first second: a probe comes back to some, e.g. to warm-up after compiling."""
    first = {}
    for stage, second in stages:
        first.setdefault(stage, second)
    return first


def _link(link: Link) -> str:
    code = f" [{link.code} {link.name}]" if link.code is not None else ""
    thread = "" if link.thread == "main" else f" (thread {link.thread})"
    return f"{link.type}{code}{thread}: {(link.text.strip().splitlines() or [''])[0]}"


def _frame(frame: Frame) -> str:
    return f"{frame.file}:{frame.line} {frame.function} ({frame.tag})"


def _witnesses(record: Record) -> list[str]:
    if not record.watched:
        return ["witnesses off"]
    counted = ", ".join(f"{name} {count}" for name, count in record.counts.items() if count)
    lines = [f"witnesses {counted or 'counted nothing'}"]
    for event in record.events[:EVENTS]:
        when = "while capturing" if event.capturing else "outside capture"
        where = f" at {_frame(event.frame)}" if event.frame else ""
        lines.append(f"  {event.kind} {when}: {event.what}{where}")
    more = len(record.events) - EVENTS
    return [*lines, *([f"  and {more} more"] if more > 0 else [])]


def log_tail(run: Path, record: Record, lines: int = LOG_LINES) -> list[str]:
    """The last lines of a record's log. A log outside the run's folder is not opened, and said so."""
    if not record.log:
        return []
    path = (run / record.log).resolve()
    if not path.is_relative_to(run.resolve()):
        return [f"log {record.log!r} is outside the run's folder and was not opened"]
    if not path.is_file():
        return [f"log {record.log!r} is not there"]
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return [plain(line) for line in text.splitlines()[-lines:]]


def plain(text: str) -> str:
    """Text without terminal sequences and control characters; newlines and tabs stay."""
    return _CONTROL.sub("", text)


class Browser:
    """What is being looked at: a run under `outputs`, which of its records, and one of them. No widgets here.

    Raises ValueError, one line, when the run, the selection or the record is not there.
    """

    def __init__(self, outputs: Path):
        self.outputs = outputs
        self.run: Path | None = None
        self.records: list[Record] = []
        self.torn: list[str] = []
        self.base: Arm | None = None
        self.shown = "all"
        self.record: Record | None = None

    def open(self, name: str) -> None:
        """Read a run; its step probes are shown, or all records where it has none."""
        names = run_names(self.outputs)
        if name not in names:
            raise ValueError(f"run: {name!r} is not under {self.outputs.name}/; there are {', '.join(names) or 'none'}")
        self.run = self.outputs / name
        self.records, self.torn = read(self.run / "records.jsonl")
        self.base = Arm(**json.loads((self.run / "run.json").read_text())["question"]["arm"])
        self.show("kind step" if "kind step" in self.selections() else "all")

    def selections(self) -> list[str]:
        """What `show` takes: all records, those of one kind, or those of one status."""
        kinds = dict.fromkeys(f"kind {record.kind}" for record in self.records)
        statuses = dict.fromkeys(f"status {record.status}" for record in self.records)
        return ["all", *sorted(kinds), *sorted(statuses)]

    def show(self, selection: str) -> None:
        """Choose which records are shown; the first of them is picked."""
        if selection not in self.selections():
            raise ValueError(f"show: {selection!r}; allowed: {', '.join(self.selections())}")
        self.shown = selection
        rows = self.rows()
        self.record = rows[0] if rows else None

    def rows(self) -> list[Record]:
        """The records shown, in the order of the run."""
        field, _, value = self.shown.partition(" ")
        return [record for record in self.records if field == "all" or getattr(record, field) == value]

    def pick(self, index: int) -> None:
        """Pick one of `rows()`."""
        if not 0 <= index < len(self.rows()):
            raise ValueError(f"record: {index}; allowed: 0 to {len(self.rows()) - 1}")
        self.record = self.rows()[index]

    def text(self) -> str:
        """All that the panel shows, in words: the run, the record picked, the table."""
        if self.run is None:
            return f"no run under {self.outputs.name}/ yet"
        parts = [f"run       {self.run.name}", f"records   {len(self.records)}: {tally(self.records)}", *self.torn]
        if self.record:
            parts += ["", record_text(self.record, self.run)]
        rows = [f"{'>' if r is self.record else ' '} {record_row(r, self.base)}" for r in self.rows()]
        parts += ["", f"question  {self.base.label()}; below, arms as they differ from it"]
        return "\n".join([*parts, f"shown     {self.shown}, {len(rows)} records; > is the one above", *rows])
