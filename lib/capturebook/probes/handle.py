"""What `Step.drive(h)` drives: phases, captures, replays and checks that land in the record like the default's."""

import contextlib
import traceback

from ..records import Check
from ..subjects.step import SubjectError, outputs_by_name
from . import memory, poison
from .compare import clone, compare
from .exceptions import walk

_STAGES = ("build", "warmup", "compile", "capture", "replay", "verify")


class Handle:
    """The step's own protocol, for what the default driver cannot do: inputs freed or rebound, its own pool or capture.

        def drive(h):
            with h.phase("warmup"):
                fn(x)
            with h.capture():
                y = fn(x)
            x.copy_(other)
            h.replay()
            h.check(y, expected)

    arm: the Arm. fn: the step's function as the arm compiles it. stream: the stream that captures use unless told
    otherwise. seed: the probe's. Phases and captures run inside step.around(), if the step has one.
    """

    def __init__(self, ctx, calls, captures, fn):
        self.arm, self.seed, self.fn, self.stream = ctx.probe.arm, ctx.seed, fn, calls.stream
        self.checks: list[Check] = []
        self.phases: list[str] = []
        self._ctx, self._calls, self._captures = ctx, calls, captures
        self._replays = 0
        self._announced = None

    @contextlib.contextmanager
    def phase(self, name: str):
        """Say what the block does: a stage (warmup, compile, capture, replay, verify), or any name.

        What has another name counts as warm-up until a graph was captured, and as replay from then on.
        """
        stage = name.replace("-", "").replace("_", "")
        if stage not in _STAGES:
            stage = "replay" if self._captures.last else "warmup"
        self.phases.append(name)
        self._ctx.stage(stage)
        with self._around():
            yield
        self._ctx.stage("replay" if self._captures.last else "warmup")

    @contextlib.contextmanager
    def capture(self, pool=None, graph=None, stream=None, capture_error_mode=None):
        """Capture the block into `graph` (default: a new one), which is what h.replay() replays from now on.

        pool: of another graph, or torch.cuda.graph_pool_handle(). capture_error_mode: the arm's unless given.
        """
        mode = capture_error_mode or self.arm.capture
        where = {"pool": pool, "stream": stream or self.stream}
        with self._captures.open(graph, capture_error_mode=mode, **where) as captured:
            with self._around():
                yield captured
        self._ctx.stage("replay")

    def before_capture(self, graph) -> None:
        """Announce a capture that the step makes itself: `graph`, a torch.cuda.CUDAGraph, is the one to replay then.

        Given a function instead, it is called with the graph of every later h.capture() before that begins, as for
        graph.register_generator_state.
        """
        import torch

        if not isinstance(graph, torch.cuda.CUDAGraph):
            self._captures.prepare.append(graph)
            return
        self._ctx.stage("capture")
        self._announced = (graph, memory.settled())

    def replay(self) -> None:
        """Replay the last graph on the current stream. All that is free is filled with NaN first."""
        import torch

        if self._announced:
            graph, before = self._announced
            self._announced = None
            self._captures.took(graph, memory.grown(before, memory.read()))
        if self._captures.last is None:
            raise SubjectError("drive: h.replay() before any capture")
        self._ctx.stage("replay")
        torch.cuda.synchronize()
        poison.fill([], [], None)
        self._replays += 1
        self._captures.last.replay()

    def check(self, got, want) -> bool:
        """Compare what is there now, in the order of the current stream, with what should be; both as fn returns them.

        Tolerance is the step's. What is wrong is recorded and the step goes on; the result says whether it was right.
        """
        got = clone(outputs_by_name(_tensors(got), "drive: got of h.check is"))
        self._calls.synchronize()
        want = outputs_by_name(_tensors(want), "drive: want of h.check is")
        checks = compare(self._call_name(), got, want, self._calls.step.tolerance)
        self.checks += checks
        return all(check.ok for check in checks)

    def _call_name(self) -> str:
        if self._captures.last or self._announced:
            return f"replay {self._replays}"
        return f"warm-up {len(self.checks) + 1}"

    def _around(self):
        step = self._calls.step
        return step.around() if step.around else contextlib.nullcontext()


def _tensors(value):
    """Numbers and truth values as tensors, so that a check may be about those too."""
    import torch

    return torch.as_tensor(value) if isinstance(value, (bool, int, float)) else value


def place(error: BaseException) -> str | None:
    """The stage in which torch's graph code raised: "capture", "replay", or None where it had no part."""
    for one in walk(error):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename.endswith("torch/cuda/graphs.py"):
                return "replay" if frame.f_code.co_name == "replay" else "capture"
    return None
