"""The calls and replays of one probe, in the contract's order, each compared with its reference."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from ..records import Check
from ..subjects.loader import SubjectError
from ..subjects.step import outputs_by_name
from . import poison
from .compare import clone, compare, copy_into


class Calls:
    """One step's inputs, state and counter. Inputs keep their addresses; their values change from call to call.

    The reference runs in a thread and on a stream of its own, so that it warms no library for the capture.
    """

    def __init__(self, step, arm, seed: int, device):
        import torch

        self.step, self.arm, self.seed, self.device = step, arm, seed, device
        self.checks: list[Check] = []
        self.caveats: list[str] = []
        self.foreign_threads = list
        self.cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream() if self.cuda else None
        self._other_stream = torch.cuda.Stream() if self.cuda and arm.stream == "other" else None
        self._counter = 0
        self.inputs = step.make_inputs(seed)
        if not isinstance(self.inputs, tuple):
            raise SubjectError(f"make_inputs: returned {type(self.inputs).__name__}; allowed: a tuple")
        self._first_state = clone(self.state())
        self._captured_output = None
        self._verifier = ThreadPoolExecutor(1, thread_name_prefix="capturebook-verify")
        self._warmer = None
        if arm.thread == "other":
            self._warmer = ThreadPoolExecutor(1, thread_name_prefix="capturebook-warmup")

    def close(self) -> None:
        for pool in filter(None, (self._verifier, self._warmer)):
            pool.shutdown()

    def state(self) -> dict:
        return dict(self.step.state()) if self.step.state else {}

    def _outputs(self) -> list:
        """Tensors that the captured call returned."""
        return list(outputs_by_name(self._captured_output).values())

    def _kept(self) -> list:
        """Tensors that must keep their values: inputs and state."""
        import torch

        return [x for x in self.inputs if isinstance(x, torch.Tensor)] + list(self.state().values())

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
        self._compared(name, lambda: self._call(fn, self._other_stream), thread=self._warmer)

    def eager(self, fn, name: str) -> None:
        self._compared(name, lambda: self._call(fn, None))

    def replay(self, captured, name: str) -> None:
        def go():
            with self.on_stream():
                captured.replay()
            return self._captured_output

        self._compared(name, go, before=lambda: poison.fill(self._outputs(), self._kept()))

    def prepare_capture(self) -> None:
        self._begin()
        self.synchronize()

    def capture(self, fn) -> None:
        """The captured call. Its stream is current already; it computes nothing until a replay."""
        with self.around():
            self._captured_output = fn(*self.inputs)

    def _call(self, fn, stream):
        with self.on_stream(stream), self.around():
            return fn(*self.inputs)

    def _begin(self) -> None:
        copy_into(self.state(), self._first_state)
        if self.step.advance:
            self.step.advance(self._counter)

    def _compared(self, name: str, run, thread=None, before=lambda: None) -> None:
        """New values, state restored, advance, snapshot, `before`, run, compare."""
        self._refill(self.seed + self._counter)
        self._begin()
        state, inputs = clone(self.state()), clone(self.inputs)
        before()
        self.synchronize()
        output = thread.submit(run).result() if thread else run()
        self.synchronize()
        self._counter += 1
        after = clone(self.state())
        got = clone(outputs_by_name(output))
        self._verifier.submit(self._verify, name, inputs, state, got, after, clone(self.inputs)).result()

    def _refill(self, seed: int) -> None:
        """Write another seed's values into the inputs in place. Raises SubjectError when anything but values varies."""
        import torch

        fresh = self.step.make_inputs(seed)
        if len(fresh) != len(self.inputs):
            raise SubjectError(f"make_inputs: {len(fresh)} inputs for seed {seed}, {len(self.inputs)} before")
        for index, (mine, new) in enumerate(zip(self.inputs, fresh)):
            if not isinstance(mine, torch.Tensor):
                if mine != new:
                    raise SubjectError(
                        f"make_inputs: input {index} is {new!r} for seed {seed}; it must not vary: {mine!r}"
                    )
                continue
            for what in ("shape", "dtype", "device"):
                if getattr(mine, what) != getattr(new, what):
                    given, allowed = getattr(new, what), getattr(mine, what)
                    raise SubjectError(
                        f"make_inputs: {what} of input {index} is {given} for seed {seed}; before: {allowed}"
                    )
            if mine.stride() != new.stride():
                raise SubjectError(f"make_inputs: strides of input {index} are {new.stride()}; before: {mine.stride()}")
            mine.copy_(new)

    def _verify(self, name, inputs, state, got, after, inputs_after) -> None:
        """Compare one call's outputs, state and inputs. Runs in the verifier's thread."""
        import torch

        # The clones were made on the caller's stream; without this the comparison races with them.
        self.synchronize()
        stream = torch.cuda.Stream() if self.cuda else None
        with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            self._undeclared(name, inputs, inputs_after)
            if self.step.check is not None:
                copy_into(self.state(), state)
                good = bool(self.step.check(inputs, got))
                self.checks.append(Check(call=name, output="check", error=None, tolerance=0.0, ok=good))
            else:
                self._against(name, inputs, state, got, after)
            self.synchronize()
        copy_into(self.state(), after)

    def _against(self, name, inputs, state, got, after) -> None:
        """Against the reference if there is one, else (and for the state) against a plain call of the step."""
        copy_into(self.state(), state)
        if self.step.reference is not None:
            want = outputs_by_name(self.step.reference(*inputs))
            self.checks += compare(name, got, want, self.step.tolerance)
            if not self.step.state:
                return
        elif not name.startswith("replay") and not name.startswith("call"):
            return
        copy_into(self.state(), state)
        plain = outputs_by_name(self.step.fn(*clone(inputs)))
        if self.step.reference is None:
            self.checks += compare(name, got, plain, self.step.tolerance)
        wanted = {f"state.{k}": v for k, v in clone(self.state()).items()}
        tolerance = self.step.tolerance if isinstance(self.step.tolerance, float) else 1e-3
        self.checks += compare(name, {f"state.{k}": v for k, v in after.items()}, wanted, tolerance)

    def _undeclared(self, name, before, after) -> None:
        """An input that changed, and is no part of the declared state."""
        import torch

        declared = {t.untyped_storage().data_ptr() for t in self.state().values()}
        for index, (was, now) in enumerate(zip(before, after)):
            live = self.inputs[index]
            if not isinstance(live, torch.Tensor) or live.untyped_storage().data_ptr() in declared:
                continue
            if not torch.equal(was.view(torch.uint8), now.view(torch.uint8)) if was.numel() else False:
                self.checks.append(
                    Check(call=name, output=f"input{index} changed, undeclared", error=None, tolerance=0.0, ok=False)
                )

    def time_eager(self, fn, samples: int) -> list[float]:
        """Microseconds of each call between two events (host time on a CPU)."""
        return self._timed(lambda: self._call(fn, None), samples)

    def time_replay(self, captured, samples: int) -> list[float]:
        """Microseconds of each replay between two events on the capture's stream."""

        def go():
            with self.on_stream():
                captured.replay()

        return self._timed(go, samples)

    def _timed(self, go, samples: int) -> list[float]:
        import time

        import torch

        times = []
        for _ in range(samples + 2):
            if not self.cuda:
                start = time.perf_counter()
                go()
                times.append((time.perf_counter() - start) * 1e6)
                continue
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with self.on_stream():
                start.record()
            go()
            with self.on_stream():
                end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
        return times[2:]
