"""A program's log as it is read from the host: whole lines, redacted, kept on this machine, and looked at once."""

import fcntl
import re
from collections.abc import Callable
from pathlib import Path

from .logmap import Said, may_mean, meaning
from .redact import Redactor

KEPT = 40
"""Last lines that are kept for reports."""

HEADER = re.compile(r"capturebook launch [0-9a-f]+")
"""The keeper's first line. It is never redacted: a secret may be a word of it."""

READ = 4 << 20
"""Bytes of a log, from its first traceback on, that are looked at for more."""

BAR = 4096
"""Bytes at the end of an unfinished line that are looked at."""


class LogView:
    """Lines so far. `wanted` are patterns to look for ({name: pattern}); `found` has the first line for each."""

    def __init__(self, path: Path, redactor: Redactor, wanted: dict[str, str]):
        self.offset = 0
        self.lines = 0
        self.found: dict[str, str] = {}
        self.at: dict[str, float | None] = {}
        self.said: list[Said] = []
        self.last: list[str] = []
        self.header = ""
        self.show: Callable[[str], None] | None = None
        self._redactor = redactor
        self._path = path
        self._file = _held(path)
        self._wanted = {name: re.compile(pattern) for name, pattern in wanted.items()}
        self._partial = b""

    def feed(self, chunk: bytes, seconds: float | None) -> None:
        """Take the next part of the log; `seconds` is the program's age, noted for the
        patterns that match in it; None when it is not known."""
        self.offset += len(chunk)
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        self._take(whole, seconds)
        # A progress bar ends its line when it is done (vLLM's capture: minutes); what it wrote over was said before.
        for state in self._partial[-BAR:].split(b"\r")[1:-1]:
            self._look_for_wanted(self._redactor.text(state.decode("utf-8", "replace")), seconds)

    def finish(self, seconds: float | None) -> None:
        """The program has ended: a last line without its newline counts too."""
        rest, self._partial = self._partial, b""
        self._take([rest] if rest else [], seconds)

    def _take(self, lines: list[bytes], seconds: float | None) -> None:
        if not lines:
            return
        # A flood mostly repeats itself: each of its lines is decoded, and looked at, once.
        known = {line: self._redactor.text(line.decode("utf-8", "replace")) for line in dict.fromkeys(lines)}
        texts = [known[line] for line in lines]
        if not self.header and HEADER.fullmatch(first := lines[0].decode("utf-8", "replace")):
            texts[0] = first
        if self._file:
            self._file.write("\n".join(texts) + "\n")
            self._file.flush()
        if not self.header:
            self.header = texts.pop(0)
            known = dict(zip(lines[1:], texts, strict=True))
        self.lines += len(texts)
        for text in texts if self.show else ():
            self.show(text)
        meaningful = may_mean("\n".join(known.values()))
        for text in known.values():
            # A progress bar writes over its line: each of its states is one.
            for part in text.split("\r"):
                self._look_for_wanted(part, seconds)
                if meaningful:
                    self._look_for_meaning(part)
        self.last = (self.last + texts[-KEPT:])[-KEPT:]

    def _look_for_wanted(self, text: str, seconds: float | None) -> None:
        for name, pattern in self._wanted.items():
            if name not in self.found and pattern.search(text):
                self.found[name], self.at[name] = text[:300], seconds

    def _look_for_meaning(self, text: str) -> None:
        if len(self.said) < KEPT:
            said = meaning(text)
            if said:
                self.said.append(said)

    def tail(self, count: int = 3) -> str:
        """The last lines that are not empty, in one."""
        return " / ".join([line.strip()[:200] for line in self.last if line.strip()][-count:])

    def tracebacks(self) -> list[str]:
        """The lines of its copy on this machine from the first traceback on, 4 MiB of them at most."""
        kept = self._path.read_bytes()
        at = kept.find(b"Traceback (most recent call last):")
        begin = kept.rfind(b"\n", 0, at) + 1
        return kept[begin : begin + READ].decode("utf-8", "replace").splitlines() if at >= 0 else []

    def close(self) -> None:
        if self._file:
            self._file.close()


def _held(path: Path):
    """The log's copy on this machine, emptied; None while another follower writes it."""
    file = open(path, "a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    file.truncate(0)
    return file
