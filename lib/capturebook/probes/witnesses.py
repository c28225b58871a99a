"""What witnesses note: what compiled, tuned, loaded or waited, and whether a capture was open at that moment."""

import functools
import sys

from ..records import Event, Frame
from .exceptions import tag_of
from .scrub import relative

_MOST_OF_A_KIND = 32
"""The first so many of each kind, capturing and not, are events: the others are counted."""


class Witnesses:
    """Readings of one probe: events (of each kind's first 32) and a count of every kind, "jit" or "jit@capture"."""

    def __init__(self, run: str | None, folders: tuple[str, ...]):
        self.events: list[Event] = []
        self.counts: dict[str, int] = {}
        self.capturing_thread: int | None = None
        """Identity of the thread that has a capture open, while it has one."""
        self.takes_warning = lambda message, filename: False
        """Whether a warning that was given is a witness's, and noted: watch_sync's, while it is installed."""
        self._run, self._folders = run, folders

    def note(self, kind: str, what: str, *, frame: bool | Frame = False, capturing: bool | None = None, **data) -> None:
        """Count one; `frame`: True for the subject's frame on the stack now, or a frame found before."""
        capturing = is_capturing() if capturing is None else capturing
        key = f"{kind}@capture" if capturing else kind
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] <= _MOST_OF_A_KIND:
            where = self.subject_frame() if frame is True else frame or None
            event = Event(kind=kind, capturing=capturing, what=what, frame=where, data=data)
            # A thread that polls makes one call from one line, over and over: the count tells how often.
            if kind != "thread_call" or event not in self.events:
                self.events.append(event)

    def subject_frame(self) -> Frame | None:
        """The innermost frame of the subject on the stack now, else the innermost outside this package."""
        frame, other = sys._getframe(2), None
        while frame is not None:
            name = frame.f_code.co_filename
            tag = tag_of(name, self._folders)
            if tag == "subject" or (other is None and tag in ("inductor", "library")):
                found = Frame(
                    file=relative(name, self._run), line=frame.f_lineno, function=frame.f_code.co_name, tag=tag
                )
                if tag == "subject":
                    return found
                other = found
            frame = frame.f_back
        return other


def is_capturing() -> bool:
    """Whether the current stream is capturing; False before CUDA is initialised, which this never does."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def replace(stack, owner, name: str, make):
    """owner.name becomes make(original) until the stack closes.

    Dynamo decides by a function's file whether to trace it, skip it or break the graph, so a wrapper takes the
    original's.
    """
    inherited = name not in vars(owner)
    original = getattr(owner, name)
    wrapper = functools.wraps(original)(make(original))
    if hasattr(original, "__code__"):
        wrapper.__code__ = wrapper.__code__.replace(co_filename=original.__code__.co_filename)
    setattr(owner, name, wrapper)
    stack.callback(delattr, owner, name) if inherited else stack.callback(setattr, owner, name, original)
