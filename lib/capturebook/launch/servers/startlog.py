"""Tracebacks in a server's start-up log, as the chain of links that a record holds: outermost first, the root last.

A server wraps what failed (sglang: "Capture cuda graph failed: ...", in another process's log record), and torch raises
901 over the real error, so the line that one sees last is not the one that counts. Python prints the root first.
"""

import re
from collections.abc import Iterable

from ...records import Frame, Link
from ...records.cuda_errors import code_of

_PREFIX = re.compile(
    r"^(?P<stream>\([\w-]+(?: [\w=]+)* ?pid=\d+\) )?"  # vLLM names its process
    r"(?:(?:ERROR|CRITICAL|WARNING|INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\] ?)?"
)
_NEW_RECORD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] |(?:INFO|WARNING|ERROR):\s")
_BEGIN = "Traceback (most recent call last):"
_JOINS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*?)(?:: (?P<text>.*))?$")
_MAX_FRAMES = 12
_MAX_TEXT = 20
"""Lines of an exception's text that are kept: torch's CUDA errors have five."""


def chains(lines: Iterable[str]) -> list[list[Link]]:
    """Every chain of exceptions that the log prints, in the order in which they begin.

    Processes that write at the same time are told apart by the name that vLLM puts before each line; sglang writes a
    traceback in one piece.
    """
    streams: dict[str, _Stream] = {}
    found: list[list[Link]] = []
    for line in lines:
        head = _PREFIX.match(line)
        name, text = head["stream"] or "", line[head.end() :].rstrip()
        streams.setdefault(name, _Stream(found)).take(text)
    for stream in streams.values():
        stream.end_text()
    return [chain for chain in found if chain]


def root_chain(lines: Iterable[str]) -> list[Link]:
    """The chain that says why it failed: the first with a CUDA error in it, else the first; [] for a log without any.

    Later ones are other processes that noticed ("See root cause above", "scheduler died").
    """
    all_of_them = chains(lines)
    coded = (chain for chain in all_of_them if any(link.code for link in chain))
    return next(coded, all_of_them[0] if all_of_them else [])


class _Stream:
    """The lines of one process. A chain is put into `found` as it begins; its links come root first and are inserted
    at the front, so that the outermost ends up first."""

    def __init__(self, found: list[list[Link]]):
        self.found = found
        self.chain: list[Link] = []
        self.frames: list[Frame] | None = None
        self.raised: tuple[str, list[str]] | None = None
        self.joined = False

    def take(self, line: str) -> None:
        if line.endswith(_BEGIN):
            self.end_text()
            if not self.joined:
                self.chain = []
                self.found.append(self.chain)
            self.frames, self.joined = [], False
        elif self.frames is not None:
            self._in_frames(line)
        elif self.raised is not None:
            self._in_text(line)
        if line.startswith(_JOINS):
            self.end_text()
            self.joined = True

    def _in_frames(self, line: str) -> None:
        frame = _FRAME.match(line)
        if frame:
            file = frame["file"]
            shown = Frame(file=_shown(file), line=int(frame["line"]), function=frame["function"], tag=_tag(file))
            self.frames.append(shown)
            return
        raised = _RAISED.match(line)
        if raised and not line.startswith(" "):
            self.raised = (raised["type"], [raised["text"] or ""])
            self.done_frames, self.frames = self.frames, None

    def _in_text(self, line: str) -> None:
        if _NEW_RECORD.match(line):
            self.end_text()
        elif len(self.raised[1]) < _MAX_TEXT:
            self.raised[1].append(line)

    def end_text(self) -> None:
        """Make a link of the exception that was being read."""
        if self.raised is None:
            return
        full_type, texts = self.raised
        text = "\n".join(texts).rstrip()
        module, _, name = full_type.rpartition(".")
        code, cuda_name = code_of(text) or (None, None)
        self.chain.insert(
            0,
            Link(
                type=name, module=module, code=code, name=cuda_name, text=text, thread="logged",
                frames=self.done_frames[-_MAX_FRAMES:],
            ),
        )  # fmt: skip
        self.raised = None


def _shown(file: str) -> str:
    """A path without the machine's folders: from site-packages on, else its last three parts."""
    inside = re.split(r"/(?:site|dist)-packages/", file)
    return inside[-1] if len(inside) > 1 else "/".join(file.strip("/").split("/")[-3:])


def _tag(file: str) -> str:
    if "/torch/_inductor/" in file or "/torchinductor_" in file or "/inductor_cache/" in file:
        return "inductor"
    return next((name for name in ("torch", "triton") if f"/{name}/" in file), "library")
