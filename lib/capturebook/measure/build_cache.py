"""Rows of the build check, kept by a hash of all that decides them. A failure is never kept."""

import hashlib
import json
import os
from pathlib import Path

_READERS = ("limits.py", "occupancy.py", "resources.py", "sass.py", "crosscompile.py")


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/capturebook/build`, or the same under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "capturebook" / "build"


def key(*parts: str) -> str:
    """Hash of `parts` and of the code that reads a cubin: when that changes, so may every figure."""
    digest = hashlib.sha256()
    for name in _READERS:
        digest.update(Path(__file__).with_name(name).read_bytes())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def read(folder: Path, name: str) -> dict | None:
    """The row kept under `name`, or None."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def write(folder: Path, name: str, row: dict) -> None:
    """Keep a row; atomic, since several probes write at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.{os.getpid()}.part"
    part.write_text(json.dumps(row))
    os.replace(part, folder / f"{name}.json")
