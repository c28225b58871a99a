"""records.jsonl: append one line at a time, flushed; read back what is whole."""

import fcntl
import os
from pathlib import Path

from pydantic import ValidationError

from .record import Record


def append(path: Path, record: Record) -> None:
    """Append one record and flush it to disk. Safe with several writers; ends a torn last line first.

    Raises OSError, naming the file, where that cannot be written.
    """
    line = record.to_line().encode() + b"\n"
    try:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.tell() and _last_byte(path) != b"\n":
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        exc.filename = str(path)  # a full disk's error names no file
        raise


def _last_byte(path: Path) -> bytes:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def read(path: Path) -> tuple[list[Record], list[str]]:
    """All whole records, in file order, and one line of text for each line that does not parse.

    A torn line is what a killed writer leaves behind: its probe counts as missing and is repeated.
    """
    records, torn = [], []
    if not path.exists():
        return records, torn
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(Record.from_line(line.decode()))
        except (ValidationError, UnicodeDecodeError):
            torn.append(f"{path.name} line {number} does not parse ({len(line)} bytes); its probe counts as missing")
    return records, torn


def latest(records: list[Record]) -> dict[str, Record]:
    """The last record of each probe: a resumed run repeats some."""
    return {record.probe: record for record in records}


def frame(records: list[Record]):
    """Records as a pandas DataFrame, one row each; the arm's factors as columns `arm.kernel` and so on."""
    import pandas

    rows = []
    for r in records:
        row = r.model_dump(exclude={"arm", "events", "chain", "checks", "provenance"})
        row.update({f"arm.{k}": v for k, v in (r.arm.model_dump() if r.arm else {}).items()})
        row["root.code"] = r.root.code if r.root else None
        row["root.name"] = r.root.name if r.root else None
        row["root.text"] = r.root.text if r.root else None
        rows.append(row)
    return pandas.DataFrame(rows)
