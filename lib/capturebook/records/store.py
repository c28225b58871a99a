"""records.jsonl: append one line at a time, flushed; read back what is whole."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from .readings import READ_BACK
from .record import SCHEMA, Record, printable


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
    """All records that count, in file order, and one line of text for each line that holds none, with the reason.

    A torn line is what a killed writer leaves behind: its probe counts as missing and is repeated. So does one of
    another schema, a damaged one, and a step's that should hold the configuration read back and does not.
    Raises OSError for what is there and is no file that can be read.
    """
    records, aside = [], []
    for number, line in enumerate(_bytes(path).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(_record(line))
        except ValueError as error:
            aside.append(f"{path.name} line {number} {_said(line, error)}; its probe counts as missing")
    return records, aside


def _bytes(path: Path) -> bytes:
    """The file's; none if there is no such name. A pipe is not waited for."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            raise
        return b""
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def _record(line: bytes) -> Record:
    """Raises ValueError for a line that holds no record that counts."""
    record = Record.from_line(line.decode())
    if "schema_version" not in record.model_fields_set:
        raise ValueError("names no schema")
    record.to_line()  # an infinity inside a payload is found here (symptom: 1e999)
    if record.unread:
        raise ValueError(
            f"has come to {record.stage} and holds no effective configuration read back ({', '.join(READ_BACK)})"
        )
    return record


class _Head(BaseModel):
    schema_version: Any = None
    kind: str = "nameless"
    probe: str = ""


def _said(line: bytes, error: ValueError) -> str:
    """Why a line does not count, in words; the record is named if the line is whole."""
    try:
        head = _Head.model_validate_json(line)
    except ValidationError:
        return f"does not parse ({len(line)} bytes)"
    if head.schema_version != SCHEMA:
        return f"has schema {head.schema_version}; this version reads {SCHEMA}"
    why = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "))))
    return printable(f"({head.kind} record {head.probe}) {why}"[:300].replace("\n", " "))


def latest(records: list[Record]) -> dict[str, Record]:
    """The last record of each probe: a resumed run repeats some."""
    return {record.probe: record for record in records}


def frame(records: list[Record]):
    """Records as a pandas DataFrame, one row each; the arm's factors as columns `arm.kernel` and so on."""
    import pandas

    rows = []
    for r in records:
        row = r.model_dump(exclude={"arm", "events", "chain", "checks", "provenance"})
        row.update({f"arm.{k}": v for k, v in (r.arm.factors() if r.arm else {}).items()})
        row["root.code"] = r.root.code if r.root else None
        row["root.name"] = r.root.name if r.root else None
        row["root.text"] = r.root.text if r.root else None
        rows.append(row)
    return pandas.DataFrame(rows)
