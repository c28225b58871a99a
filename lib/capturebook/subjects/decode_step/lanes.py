"""Side streams of a step: work forked off the current stream and joined again, as servers do while they capture."""

import contextlib
import ctypes

import torch

BREAKS = ("none", "before", "after_fork", "between")
_unregistered_call = ctypes.CDLL(None).getpid
"""Stands for a server's JIT kernel that is not registered with torch: a foreign call, which costs a graph break."""


class Lanes:
    """One side stream a name. A name without one, as on a CPU, runs in place.

    sync: "stream" forks and joins by wait_stream, "event" by events. graph_break: where torch.compile breaks the graph:
    "before" the step, "after_fork" (each), "between" what is forked and its join, or "none". What is forked must be
    joined before its results are used and before what it reads is freed: a step keeps both in variables until then.
    Raises ValueError naming the option.
    """

    def __init__(self, names: tuple[str, ...] = (), sync: str = "stream", graph_break: str = "none"):
        if sync not in ("stream", "event"):
            raise ValueError(f"sync: {sync!r}; allowed: stream, event")
        if graph_break not in BREAKS:
            raise ValueError(f"graph_break: {graph_break!r}; allowed: {', '.join(BREAKS)}")
        self._sync, self._break = sync, graph_break
        self._streams = {name: torch.cuda.Stream() for name in names}

    def begin(self) -> None:
        """A step begins."""
        if self._break == "before":
            _unregistered_call()

    @contextlib.contextmanager
    def fork(self, name: str):
        """What runs inside is issued to the lane, after all that the current stream has been given so far."""
        side = self._streams.get(name)
        if side is not None:
            main = torch.cuda.current_stream()
            if self._sync == "stream":
                side.wait_stream(main)
            else:
                side.wait_event(main.record_event())
        if self._break == "after_fork":
            _unregistered_call()
        if side is None:
            yield
            return
        with torch.cuda.stream(side):
            yield

    def join(self, *names: str) -> None:
        """The current stream waits for these lanes."""
        if self._break == "between":
            _unregistered_call()
        for name in names:
            side = self._streams.get(name)
            if side is None:
                continue
            main = torch.cuda.current_stream()
            if self._sync == "stream":
                main.wait_stream(side)
            else:
                main.wait_event(side.record_event())
