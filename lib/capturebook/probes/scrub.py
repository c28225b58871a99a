"""Paths and texts as records may hold them: relative, without host or user names."""

import functools
import os
import sysconfig
from pathlib import Path

from ..paths import repository

PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def _prefixes(run: str | None) -> list[tuple[str, str]]:
    """(folder of this machine, what stands for it), longest first."""
    standard = sysconfig.get_paths()
    pairs = [(str(PACKAGE.parent), "lib"), (str(repository()), "")]
    pairs += [(standard[name], "") for name in ("purelib", "platlib")] + [(standard["stdlib"], "python")]
    pairs += [(os.path.abspath(part), "") for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if run:
        pairs += [(run, "run"), (str(Path(run).resolve()), "run")]
    home = os.path.expanduser("~")
    if len(home) > 1:
        pairs.append((home, "~"))
    pairs = {(folder.rstrip("/") + "/", f"{name}/" if name else "") for folder, name in pairs}
    return sorted(pairs, key=lambda pair: -len(pair[0]))


def relative(path: str, run: str | None = None) -> str:
    """A path relative to repository, run or site-packages; of any other file the last two parts."""
    for folder, name in _prefixes(run):
        if path.startswith(folder):
            return name + path[len(folder) :]
    return "/".join(Path(path).parts[-2:]) if path.startswith("/") else path


def scrub(text: str, run: str | None = None) -> str:
    """A text with this machine's folders shortened the same way."""
    for folder, name in _prefixes(run):
        text = text.replace(folder, name)
    return text
