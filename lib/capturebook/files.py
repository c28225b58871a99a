"""Files read as JSON objects and written whole, and the name of the file in what the system refuses."""

import contextlib
import errno
import json
import os
import threading
from pathlib import Path

from .paths import shown

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that takes no more."""


@contextlib.contextmanager
def named(path: Path):
    """An OSError says of which file: that of a write or a flush names none."""
    try:
        yield
    except OSError as exc:
        exc.filename = str(path)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text so that a reader sees the old file or the new one, never half of it; on a full disk the old one."""
    part = path.with_name(f".{path.name}.{threading.get_native_id()}")  # two threads of a process may write one file
    try:
        with named(path):
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_object(path: Path) -> dict:
    """A JSON object. Raises OSError, or ValueError saying in one line that the file is damaged, and how."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise ValueError(f"{shown(path)} is damaged: {exc}") from None
    except RecursionError:
        raise ValueError(f"{shown(path)} is damaged: it is nested too deep") from None
    if not isinstance(held, dict):
        raise ValueError(f"{shown(path)} is damaged: it holds no JSON object")
    return held
