"""Paths and texts as records may hold them: relative, without host or user names."""

import functools
import html
import json
import os
import re
import socket
import sys
import sysconfig
from pathlib import Path
from urllib.parse import quote

from ..files import write_whole
from ..paths import repository

PACKAGE = Path(__file__).resolve().parents[1]

LOG_BYTES = 3 << 19
"""What is kept of a long log: a third of it from the beginning, the rest from the end."""


def _modules() -> str:
    """Where this process and its children find modules now; the command line adds a subject's folder."""
    return os.environ.get("PYTHONPATH", "")


@functools.cache
def _prefixes(run: str | None, modules: str) -> list[tuple[str, str]]:
    """(folder of this machine, what stands for it), longest first; of two names for a folder the first."""
    standard = sysconfig.get_paths()
    pairs = [(str(PACKAGE.parent), "lib"), (str(repository()), "")]
    pairs += [(standard[name], "") for name in ("purelib", "platlib")] + [(standard["stdlib"], "python")]
    pairs += [(os.path.abspath(part), "") for part in modules.split(os.pathsep) if part]
    if sys.prefix != sys.base_prefix:
        pairs.append((sys.prefix, "venv"))
    if run:
        pairs += [(run, "run"), (str(Path(run).resolve()), "run")]
    home = os.path.expanduser("~")
    if len(home) > 1:
        pairs.append((home, "~"))
    named: dict[str, str] = {}
    for folder, name in pairs:
        if folder.rstrip("/"):  # a checkout in / or PYTHONPATH=/ names nobody, and would take every slash
            named.setdefault(folder.rstrip("/") + "/", f"{name}/" if name else "")
    return sorted(named.items(), key=lambda pair: -len(pair[0]))


def _spellings(folder: str) -> set[str]:
    """A folder as it is, and as JSON, Python, HTML and URLs escape umlauts, quotes and backslashes.

    Once more by each of another: a notebook is JSON, and what a cell of it shows may be a parameter as Python text.
    """
    found = {folder}
    for _ in range(2):
        for text in list(found):
            escaped = text.encode("unicode_escape").decode()
            found |= {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
            found |= {escaped, escaped.replace('"', '\\"'), html.escape(text), quote(text, errors="surrogatepass")}
    return found


@functools.cache
def _pattern(run: str | None, modules: str) -> tuple[re.Pattern, dict[str, str]]:
    """What `scrub` looks for, folders and names that begin so apart, and what it writes instead."""
    names, spelt = {}, []
    for folder, name in _prefixes(run, modules):
        for spelling in _spellings(folder[:-1]):
            spelt.append(spelling)
            names |= {f"{spelling}/": name, spelling: name[:-1] or "."}
    folders = "|".join(map(re.escape, sorted(spelt, key=len, reverse=True)))
    found = rf"(?:{folders})(?:/|(?!\.?[\w-]))"
    host = socket.gethostname()
    if _tells(host):
        names[host] = "host"
        found += rf"|(?<![\w.-]){re.escape(host)}(?![\w-])"
    return re.compile(found), names


def _tells(host: str) -> bool:
    """Whether a host's name is one: `gpu` or `localhost` would be found in every other line."""
    return len(host) > 5 and any(character in "0123456789-." for character in host)


def relative(path: str, run: str | None = None) -> str:
    """A path relative to repository, run or site-packages; of any other file the last two parts."""
    for folder, name in _prefixes(run, _modules()):
        if path.startswith(folder):
            return name + path[len(folder) :]
    return "/".join(Path(path).parts[-2:]) if path.startswith("/") else path


def scrub(text: str, run: str | None = None) -> str:
    """A text with this machine's folders shortened the same way, and without its host's name."""
    pattern, names = _pattern(run, _modules())
    return pattern.sub(lambda found: names[found[0]], text)


def scrub_all(value, run: str | None = None):
    """Anything that JSON can hold with its texts scrubbed; keys stay, they are read again."""
    if isinstance(value, str):
        return scrub(value, run)
    if isinstance(value, dict):
        return {name: scrub_all(item, run) for name, item in value.items()}
    return [scrub_all(item, run) for item in value] if isinstance(value, list) else value


def scrub_file(path: Path, run: str, most: int | None = None) -> None:
    """Scrub a file of a run that nobody writes to any more; of more than `most` bytes the middle is left out.

    A reader sees the old file or the new one. One that has nothing to hide is left as it is.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        if most is None or size <= most:
            held = file.read()
        else:
            held = file.read(most // 3)
            left = size - most
            file.seek(left, os.SEEK_CUR)
            held += f"\n[{left} bytes left out]\n".encode() + file.read()
    text = held.decode(errors="backslashreplace")
    clean = scrub(text, run)
    if clean == text and len(held) == size:
        return
    write_whole(path, clean)
