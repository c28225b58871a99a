"""The calls and replays of one probe, in the contract's order, each compared with its reference."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from ..subjects.step import outputs_by_name
from . import inputs, poison, verify
from .state import State


class Calls:
    """One step's inputs, state and counter. Inputs keep their addresses; their values change from call to call.

    `freeze`: the number that advance gets before every warm-up, instead of the counter (None: the counter).
    """

    def __init__(self, step, arm, seed: int, device, caveats: list[str], freeze: int | None = None):
        import torch

        self.step, self.arm, self.seed, self.device = step, arm, seed, device
        self.caveats = caveats
        self.cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream() if self.cuda else None
        self._other_stream = torch.cuda.Stream() if self.cuda and arm.stream == "other" else None
        self._counter, self._freeze = 0, freeze
        self.inputs = inputs.make(step, seed)
        self.state = State(step)
        self._captured_output = None
        self._shapes: dict = {}
        self._verifier = verify.Verifier(step, arm, self.state, self.cuda, self.caveats, self.around)
        self._warmer = None
        if arm.thread == "other":
            self._warmer = ThreadPoolExecutor(1, thread_name_prefix="capturebook-warmup")

    @property
    def checks(self) -> list:
        return self._verifier.checks

    def close(self) -> None:
        self._verifier.close()
        if self._warmer:
            self._warmer.shutdown()

    @contextlib.contextmanager
    def around(self):
        import torch

        with self.step.around() if self.step.around else torch.no_grad():
            yield

    @contextlib.contextmanager
    def on_stream(self, stream=None):
        """The capture's stream, or another; nothing on a CPU."""
        import torch

        with torch.cuda.stream(stream or self.stream) if self.cuda else contextlib.nullcontext():
            yield

    def synchronize(self) -> None:
        import torch

        if self.cuda:
            torch.cuda.synchronize()

    def warm_up(self, fn, name: str) -> None:
        """One warm-up call, on the stream and thread that the arm says."""
        self._compared(name, lambda: self.call(fn, self._other_stream), thread=self._warmer)

    def eager(self, fn, name: str) -> None:
        self._compared(name, lambda: self.call(fn, None))

    def replay(self, captured, name: str) -> None:
        kept = inputs.tensors(self.inputs) + list(self.state.live().values())
        outputs = list(outputs_by_name(self._captured_output).values())
        self._compared(
            name, lambda: self.replayed(captured), before=lambda: poison.fill(outputs, kept, captured.pool())
        )

    def replayed(self, captured):
        """Replay on the capture's stream; the outputs of the captured call."""
        with self.on_stream():
            captured.replay()
        return self._captured_output

    def prepare_capture(self) -> None:
        """The captured call has a number of its own, like every call; what it starts from is put in place here."""
        self._freeze = None
        self._begin()
        self._counter += 1
        self._shapes = self.state.shapes()
        self.synchronize()

    def rehearse(self, fn) -> None:
        """What the captured call ran, as a plain call on the capture's stream and thread; then all is put in place."""
        for run in (True, False):
            self.state.restore()
            if self.step.advance:
                self.step.advance(self._counter - 1)
            if run:
                self.call(fn)
            self.synchronize()

    def capture(self, fn) -> None:
        """The captured call. Its stream is current already; it computes nothing until a replay."""
        with self.around():
            self._captured_output = fn(*self.inputs)

    def took_capture(self) -> None:
        """After the capture has ended: what the host's part of the captured call did to the state's shapes."""
        self.state.note_captured(self._shapes)

    def all_on_host(self) -> bool:
        """Whether all that goes into the captured call, comes out of it or outlives it is pageable host memory."""
        outputs = list(outputs_by_name(self._captured_output).values())
        every = inputs.tensors(self.inputs) + outputs + list(self.state.live().values())
        return bool(outputs) and all(t.device.type == "cpu" and not inputs.pinned(t) for t in every)

    def call(self, fn, stream=None):
        """One call on the live inputs."""
        with self.on_stream(stream), self.around():
            return fn(*self.inputs)

    def renew(self) -> None:
        """The next seed's values in the inputs, the state restored, the caller's host work done."""
        seed = self.seed + self._counter
        inputs.refill(self.inputs, inputs.make(self.step, seed), seed)
        self._begin()

    def _begin(self) -> None:
        self.state.restore()
        if self.step.advance:
            self.step.advance(self._counter if self._freeze is None else self._freeze)

    def _compared(self, name: str, run, thread=None, before=lambda: None) -> None:
        """New values, state restored, advance, snapshot, `before`, run, compare."""
        self.renew()
        made = verify.start(name, self.inputs, self.state, self.cuda)
        if self.state.reshaped:
            self._verifier.reference(made)
        before()
        self.synchronize()
        output = thread.submit(run).result() if thread else run()
        self.synchronize()
        self._counter += 1
        verify.finish(made, output, self.state, self.cuda)
        self._verifier.check(made)
