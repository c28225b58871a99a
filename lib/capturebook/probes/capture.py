"""One capture, as the arm says: the graph, what it cost, what was warned of, and what it holds."""

import contextlib
import threading
import time
import warnings

from . import graph as graphs
from . import memory
from .threads import HOLD_SECONDS


class Captures:
    """Every capture of one probe. `last` is the graph to replay; fields of the record grow as captures end."""

    def __init__(self, ctx, caveats: list[str], witnesses, threads):
        self._ctx, self._caveats, self._witnesses, self._threads = ctx, caveats, witnesses, threads
        self.count = 0
        self.last = None
        self.prepare = []
        """Functions that get each graph before its capture begins: registering generators, for one."""

    @contextlib.contextmanager
    def open(self, graph=None, before=lambda: None, **how):
        """Capture what runs in the block into `graph`, or a new one. `how`: pool, stream, capture_error_mode.

        `before` is called last of all that comes before the capture.
        With witnesses a new graph is kept in its raw form, so that its nodes can be read; a given one is as it is.
        """
        import torch

        self._ctx.stage("capture")
        watched = self._ctx.probe.watched
        kept = graph is None and watched
        graph = torch.cuda.CUDAGraph(keep_graph=watched) if graph is None else graph
        how.setdefault("capture_error_mode", self._ctx.probe.arm.capture)
        for function in self.prepare:
            function(graph)
        before()
        memory_before = memory.settled()
        with self._watched() if watched else contextlib.nullcontext():
            with self._seen_by_threads(), torch.cuda.graph(graph, **how):
                yield graph
                if self._threads.names():
                    time.sleep(HOLD_SECONDS)
        if kept:
            self._describe(graph)
            graph.instantiate()
        self.took(graph, memory.grown(memory_before, memory.read()))

    def took(self, graph, cost: dict[str, int]) -> None:
        """A capture ended well: `graph` is the one to replay now."""
        self.last = graph
        self.count += 1
        total = self._ctx.fields.setdefault("effective", {}).setdefault("memory", {"graphs": 0})
        total["graphs"] += 1
        for name, size in cost.items():
            total[name] = total.get(name, 0) + size

    def _describe(self, graph) -> None:
        held = graphs.describe(graph.raw_cuda_graph())
        self._ctx.fields["graph"] = held
        if self._ctx.probe.arm.overlap and not held["parallel"]:
            lost = "overlap lost: the captured graph is one chain, the side stream's work runs in line"
            self._caveats.append(lost)

    @contextlib.contextmanager
    def _seen_by_threads(self):
        """Calls that other threads make meanwhile are noted: only their own thread would know otherwise."""
        self._witnesses.capturing_thread = threading.get_ident()
        try:
            yield
        finally:
            self._witnesses.capturing_thread = None

    @contextlib.contextmanager
    def _watched(self):
        """What is read around a capture: warnings, and how often the allocator found no memory or had to try again."""
        before = memory.shortages()
        try:
            with self._warnings():
                yield
        finally:
            for what, count in memory.shortages().items():
                if more := count - before.get(what, 0):
                    self._witnesses.note("oom", f"{more} {what}", capturing=True)

    @contextlib.contextmanager
    def _warnings(self):
        """Each warning given while the capture is open or ends: an event and a caveat. They are shown as well."""
        caught = []

        def catch(message, category, filename, lineno, file=None, line=None):
            if not self._witnesses.takes_warning(message, filename):
                caught.append((message, category, filename, lineno))

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = catch
                yield
        finally:
            for warning in caught:
                warnings.showwarning(*warning)
            for text in dict.fromkeys(str(message).partition("\n")[0][:300] for message, *_ in caught):
                self._witnesses.note("warning", text, capturing=True)
                self._caveats.append(f"warned while capturing: {text}")
