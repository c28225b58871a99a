"""Triton's and Inductor's disk caches of a run: what other processes left decides what a probe sees, so it is chosen.

A cold probe starts from empty folders. Others get a private copy of the run's store, which grows by what finished
probes compiled.
"""

import fcntl
import json
import os
import shutil
from pathlib import Path

KINDS = ("triton", "inductor")

STORE = ".caches"
"""The store's folder in a run's."""


def prepare(scratch: Path, source: Path | None) -> dict[str, int]:
    """Make a probe's private folders, copied from `source` or empty; returns the number of files in each."""
    counts = {}
    for kind in KINDS:
        target = scratch / kind
        if source is not None and (source / kind).is_dir():
            with _locked(source):
                shutil.copytree(source / kind, target, symlinks=True)
            _rehome(target)
        else:
            target.mkdir(parents=True)
        counts[kind] = sum(1 for path in target.rglob("*") if path.is_file())
    return counts


def _rehome(folder: Path) -> None:
    """Triton's list of a kernel's files names them where they were compiled, in a folder that is gone, and a list whose
    files are not there counts for nothing: the kernel would be compiled anew in every process."""
    for held in folder.glob("*/__grp__*.json"):  # one that a killed process was writing lies deeper
        files = json.loads(held.read_text())["child_paths"]
        here = {name: str(held.parent / Path(path).name) for name, path in files.items()}
        held.write_text(json.dumps({"child_paths": here}))


def merge(scratch: Path, store: Path) -> None:
    """Add what a finished probe compiled to the store; files already there stay as they are.

    Tuning results are left out: those that Triton wrote to disk would turn a later live tuning into a cached one, and
    Inductor keeps a benchmark that a capture refused as "infinitely slow" (symptom: NoValidChoicesError in a warm arm).
    """
    store.mkdir(parents=True, exist_ok=True)
    with _locked(store):
        for kind in KINDS:
            for path in (scratch / kind).rglob("*"):
                inside = path.relative_to(scratch / kind)
                target = store / kind / inside
                tuning = ".autotune." in path.name or (kind == "inductor" and inside.parts[0] == "cache")
                if path.is_file() and not target.exists() and not tuning:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    part = target.with_name(f"{target.name}.{os.getpid()}.part")
                    shutil.copy2(path, part)
                    os.replace(part, target)


class _locked:
    def __init__(self, store: Path):
        self._path = store / ".lock"

    def __enter__(self):
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *exc):
        os.close(self._handle)
