"""A program's log as it is read from the host: whole lines, redacted, kept on this machine, and looked at once."""

import contextlib
import fcntl
import re
from collections.abc import Callable
from pathlib import Path

from .literal import words_of
from .logmap import Said, may_mean, meaning
from .redact import Redactor

KEPT = 40
"""Last lines that are kept for reports."""

LONGEST = 1000
"""Characters of each of them; a program may print megabytes without a newline."""

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
        self._wanted = {name: (re.compile(pattern), words_of(pattern)) for name, pattern in wanted.items()}
        self._partial = bytearray()

    def feed(self, chunk: bytes, seconds: float | None) -> None:
        """Take the next part of the log; `seconds` is the program's age, noted for the
        patterns that match in it; None when it is not known."""
        self.offset += len(chunk)
        at = chunk.rfind(b"\n")
        if at < 0:
            self._partial += chunk
        else:
            whole = bytes(self._partial) + chunk[:at]
            self._partial = bytearray(chunk[at + 1 :])
            self._take(whole, seconds)
        # A progress bar ends its line when it is done (vLLM's capture: minutes); what it wrote over was said before.
        if bars := self._partial[-BAR:].split(b"\r")[1:-1]:
            self._look_for_wanted(self._redactor.text(_decoded(b"\r".join(bars))), seconds)

    def finish(self, seconds: float | None) -> None:
        """The program has ended: a last line without its newline counts too."""
        rest, self._partial = bytes(self._partial), bytearray()
        if rest:
            self._take(rest, seconds)

    def _take(self, whole: bytes, seconds: float | None) -> None:
        """Whole lines, the last one's newline left out. All at once: a flood has millions of them."""
        first, _, rest = whole.partition(b"\n")
        if not self.header and HEADER.fullmatch(header := _decoded(first)):
            text = f"{header}\n{self._redactor.text(_decoded(rest))}" if len(whole) > len(first) else header
        else:
            text = self._redactor.text(_decoded(whole))
        if self._file:
            self._file.write(f"{text}\n")
            self._file.flush()
        if not self.header:
            self.header, more, text = text.partition("\n")
            if not more:
                return
        self.lines += text.count("\n") + 1
        for line in text.split("\n") if self.show else ():
            self.show(line)
        self.last = (self.last + [line[:LONGEST] for line in text.rsplit("\n", KEPT)[-KEPT:]])[-KEPT:]
        self._look_for_wanted(text, seconds)
        if len(self.said) < KEPT and may_mean(text):
            self._look_for_meaning(_once(text))

    def _look_for_wanted(self, text: str, seconds: float | None) -> None:
        lines = None
        for name, (pattern, words) in self._wanted.items():
            if name in self.found or words and not any(word in text for word in words):
                continue
            lines = lines or _once(text)
            if (line := next(filter(pattern.search, lines), None)) is not None:
                self.found[name], self.at[name] = line[:300], seconds

    def _look_for_meaning(self, lines: list[str]) -> None:
        for said in filter(None, map(meaning, lines)):
            self.said.append(said)
            if len(self.said) == KEPT:
                return

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

    def give_up_copy(self) -> None:
        """Keep no more of it on this machine, whose disk takes no more."""
        with contextlib.suppress(OSError):
            self.close()
        self._file = None


def _decoded(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


def _once(text: str) -> list[str]:
    """Its different lines: a flood mostly repeats itself. A progress bar writes over its line, and each of its states
    is one."""
    return list(dict.fromkeys(text.replace("\r", "\n").split("\n")))


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
