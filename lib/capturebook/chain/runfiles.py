"""A run's folder and files: where a new one goes, read with one clear line, written whole or not at all; stamps."""

import contextlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from .. import files, paths
from ..params.plain import is_unicode


class RunFolderError(ValueError):
    """A run folder cannot be made, opened or resumed. One line says which and why."""


def stamp() -> str:
    """Now, as records hold it: UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def earlier(stamp_a: str, stamp_b: str) -> bool:
    """Whether one stamp is before another."""
    return datetime.fromisoformat(stamp_a) < datetime.fromisoformat(stamp_b)


@contextlib.contextmanager
def usable(path: Path):
    """What the system refuses (read-only, full, no such place, too long a name), as a RunFolderError."""
    try:
        yield
    except OSError as exc:
        text = f"run_dir: given {paths.shown(path)!r}: {exc.strerror}; allowed: a folder that can be made and written"
        raise RunFolderError(text) from None


def refuse_name(path: Path) -> None:
    """Raises RunFolderError for a folder whose name is no text: neither JSON nor a page could name it."""
    if not is_unicode(paths.shown(path)):
        given = ascii(paths.shown(path))
        raise RunFolderError(f"run_dir: given {given}; allowed: a path that is text in UTF-8, as the locale must be")


def read_object(path: Path) -> dict:
    """A JSON object of a run, such as hypothesis.json. Raises RunFolderError naming a file that holds none."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise RunFolderError(f"run_dir: {paths.shown(path)} cannot be read: it is no regular file")
    try:
        return files.read_object(path)
    except OSError as exc:
        raise RunFolderError(f"run_dir: {paths.shown(path)} cannot be read: {exc.strerror}") from None
    except ValueError as exc:
        raise RunFolderError(f"run_dir: {exc}") from None


def write_json(path: Path, obj) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    files.write_whole(path, json.dumps(obj, indent=1, allow_nan=False) + "\n")


def fresh(preset: str) -> Path:
    """A new run's folder under outputs/: the preset and the UTC second it began, with a number if that is taken."""
    word = re.sub(r"[^A-Za-z0-9_-]+", "_", preset)
    base = paths.resolve("outputs") / f"{word}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def claim(preset: str) -> Path:
    """A new run's folder, made: of two runs that begin in the same second each gets its own. Raises RunFolderError."""
    while True:
        path = fresh(preset)
        with usable(path), contextlib.suppress(FileExistsError):  # taken since we looked: the next number
            path.mkdir(parents=True)
            return path


def holds_run(path: Path) -> bool:
    """Whether there is a run to resume. Raises RunFolderError for a folder that cannot be looked into."""
    with usable(path):
        return (path / "run.json").exists()
