"""Compare one call's outputs, state and inputs with what they should be, in a thread and on a stream of its own.

Its own thread, so that a reference warms no library for the capture.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..records import Check
from ..subjects.step import SubjectError, outputs_by_name
from . import inputs as inputs_
from . import rng
from .compare import CHECK, clone, compare, truth
from .exceptions import text_of
from .metric import same_bits


@dataclass
class Made:
    """One call or replay: what it started from, and what it left. Tensors are clones; `live` are the inputs."""

    name: str
    live: tuple
    inputs: tuple
    state: dict
    rng: dict
    output: Any = None
    inputs_after: tuple = ()
    state_after: dict = field(default_factory=dict)
    rng_after: dict = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    """Storages of what the call returned: an input among them is an output, and may change."""
    wanted: dict | None = None
    """The reference's outputs, where they had to be computed before the call."""


class Verifier:
    """Makes the Checks of a probe. `caveats` is the probe's list; `reference()` may also be asked for beforehand."""

    def __init__(self, step, arm, state, cuda: bool, caveats: list[str], around):
        self.step, self.arm, self.state, self.cuda, self.caveats, self._around = step, arm, state, cuda, caveats, around
        self.checks: list[Check] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="capturebook-verify")

    def close(self) -> None:
        self._thread.shutdown()

    def reference(self, made: Made) -> None:
        """Compute the reference before the call: afterwards a state of another shape cannot be put back."""
        if self.step.reference is not None:
            made.wanted = self._thread.submit(self._apart, self._reference, made).result()

    def check(self, made: Made) -> None:
        self._thread.submit(self._apart, self._check, made).result()

    def _apart(self, function, made: Made):
        import torch

        self._synchronize()  # the clones were made on the caller's stream: the comparison must not race with them
        with self._around(), torch.cuda.stream(torch.cuda.Stream()) if self.cuda else contextlib.nullcontext():
            result = function(made)
            self._synchronize()
        return result

    def _synchronize(self) -> None:
        """Also before state is read or put back: a copy into pinned memory goes on when the call has returned."""
        import torch

        if self.cuda:
            torch.cuda.synchronize()

    def _check(self, made: Made) -> None:
        self._undeclared(made)
        changed = self.state.note_shapes(made.state, made.state_after)
        if self.step.check is not None:
            self._put_back(made)
            good = self._users("check", lambda *given: truth(self.step.check(*given)), made.inputs, made.output)
            self.checks.append(Check(call=made.name, output=CHECK, error=None, tolerance=0.0, ok=good))
        elif self.step.reference is not None and (made.wanted is not None or not changed):
            self._outputs(made, made.wanted if made.wanted is not None else self._reference(made))
        self._against_plain_call(made, changed)
        self.state.put(made.state_after)
        rng.restore(made.rng_after)

    def _put_back(self, made: Made) -> None:
        self._synchronize()
        self.state.put(made.state)
        rng.restore(made.rng)

    def _reference(self, made: Made) -> dict:
        self._put_back(made)
        return outputs_by_name(self._users("reference", self.step.reference, *made.inputs), "reference: returned")

    def _users(self, what: str, function, *args):
        """Call the subject's reference or check; what it raises is told as its own."""
        try:
            return function(*args)
        except SubjectError:
            raise
        except Exception as error:
            text = text_of(error).partition("\n")[0][:300]
            raise SubjectError(f"{what}: raised {type(error).__name__}: {text}") from error

    def _against_plain_call(self, made: Made, changed: set[str]) -> None:
        """The state, and outputs that have no reference, against an uncompiled, uncaptured call from the same start."""
        judged = self.step.reference is not None or self.step.check is not None
        replay = made.name.startswith("replay")
        if changed and not replay or judged and not made.state:
            return
        self._put_back(made)
        plain = outputs_by_name(self.step.fn(*inputs_.copies(made.inputs)))
        self._synchronize()
        if not judged:
            self._outputs(made, plain)
        wanted = {n: v for n, v in self.state.snapshot().items() if replay or n not in self.state.reshaped}
        wanted = {f"state.{n}": v for n, v in wanted.items()}
        got = {f"state.{n}": v for n, v in made.state_after.items()}
        tolerance = self.step.tolerance if isinstance(self.step.tolerance, float) else None
        self._add(made, compare(made.name, got, {n: v for n, v in wanted.items() if n in got}, tolerance), got, wanted)

    def _outputs(self, made: Made, want: dict) -> None:
        got = outputs_by_name(made.output)
        if len(got) > len(want):
            note = f"not compared, since the reference does not give it: {', '.join(n for n in got if n not in want)}"
            self._say_once(note)
        self._add(made, compare(made.name, got, want, self.step.tolerance), got, want)

    def _say_once(self, note: str) -> None:
        if note not in self.caveats:
            self.caveats.append(note)

    def _add(self, made: Made, checks: list[Check], got: dict, want: dict) -> None:
        """Inductor draws other random numbers than eager code does: of such a call only the form can be compared."""
        inductor = self.arm.compile not in ("none", "eager", "aot_eager")
        random = inductor and rng.drew(made.rng, made.rng_after)
        bad = [c for c in checks if not c.ok]
        for name in (c.output for c in bad if c.output in got and c.output in want):
            shapes = [list(values[name].shape) for values in (got, want)]
            if shapes[0] != shapes[1]:
                self._say_once(f"{name} has the shape {shapes[0]}, and should have {shapes[1]}")
        if bad and random and all(_same_form(got, want, c.output) for c in bad):
            note = "random numbers: compiled code draws others than eager code; only shape and finiteness were compared"
            self._say_once(note)
            checks = [c if c.ok else c.model_copy(update={"ok": True}) for c in checks]
        self.checks += checks

    def _undeclared(self, made: Made) -> None:
        """An input that changed, and is neither part of the declared state nor what the call returned."""
        known = self.state.storages() | made.returned
        tensors = (inputs_.tensors(x) for x in (made.live, made.inputs, made.inputs_after))
        for index, (live, was, now) in enumerate(zip(*tensors)):
            if live.untyped_storage().data_ptr() not in known and not same_bits(was, now):
                name = f"input{index} changed, undeclared"
                self.checks.append(Check(call=made.name, output=name, error=None, tolerance=0.0, ok=False))


def _same_form(got: dict, want: dict, name: str) -> bool:
    import torch

    if name not in got or name not in want or got[name].shape != want[name].shape:
        return False
    return torch.equal(torch.isfinite(got[name]).cpu(), torch.isfinite(want[name]).cpu())


def storages(output) -> set[int]:
    """Storages of the tensors that a call returned."""
    return {t.untyped_storage().data_ptr() for t in outputs_by_name(output).values()}


def start(name: str, live: tuple, state, cuda: bool) -> Made:
    """What a call is about to start from."""
    return Made(name, live, inputs_.copies(live), state.snapshot(), rng.snapshot(cuda))


def finish(made: Made, output, state, cuda: bool) -> None:
    """What the call left."""
    made.output, made.returned = clone(output), storages(output)
    made.inputs_after, made.state_after = clone(made.live), state.snapshot()
    made.rng_after = rng.snapshot(cuda)
