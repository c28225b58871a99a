"""A user's own step in a sweep: built, called in the contract's order, compiled, checked against its reference."""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from ..probes.compare import CHECK, clone, compare, compared, copy_into, truth
from ..probes.compiled import compiled
from ..probes.state import State
from ..records import Arm, Check, Subject
from ..subjects.step import outputs_by_name
from .poison import fresh_memory_is_nan
from .specialise import config_text


def build(target: str, options: dict):
    """The Step of `target`. Raises SubjectError for options that its build does not take."""
    from ..subjects.loader import as_step, load, options_for

    function = load(target)
    keywords, _ = options_for(function, Subject(target=target, options=options), Arm())
    return as_step(function(**keywords))


class Side:
    """A step or its twin: its first state and its one counter of calls."""

    def __init__(self, step):
        self.step = step
        self._state, self._counter = State(step), count()

    @property
    def alone(self) -> bool:
        """Whether calls cannot follow each other in one graph: state must be restored or the host works in between."""
        return bool(self.step.advance or self.state())

    def state(self) -> dict:
        return self._state.live()

    def begin(self) -> None:
        """Before a call or replay: the first state again, and the host's work for it."""
        self._state.restore()
        if self.step.advance:
            self.step.advance(next(self._counter))

    def call(self, function: Callable, inputs: tuple):
        import torch

        with self.step.around() if self.step.around else torch.no_grad():
            return function(*inputs)

    def compiled(self, mode: str) -> Callable:
        """The step under torch.compile, where the step says it goes; `mode` as an arm's `compile`.

        Compiled when it is first called, so that whatever goes wrong does so in a call of this variant.
        """

        @functools.cache
        def made():
            return compiled(self.step, Arm(compile=mode))

        return lambda *inputs: made()(*inputs)


@dataclass(frozen=True)
class Variant:
    """What is timed under one name; `compile` is "" for a function that is called as it is."""

    name: str
    side: Side
    fn: Callable
    compile: str = ""

    def config(self) -> str:
        """What was chosen here: the winners of the step's autotuners, or how it was compiled."""
        if self.compile:
            return f"compile={self.compile}"
        tuners = {name: kernel for name, kernel in self.side.step.kernels.items() if hasattr(kernel, "configs")}
        shown = []
        for name, tuner in tuners.items():
            chosen = tuner.configs if len(tuner.configs) == 1 else list(tuner.cache.values())
            shown += [f"{name} {text}" for text in dict.fromkeys(config_text(config) for config in chosen)]
        return "; ".join(shown)


def verify(variants: list[Variant], step, sets: list[tuple], ctx, left: dict) -> list[dict]:
    """Checks of every variant, as records hold them: two calls, the second of uncompiled code into poisoned memory.

    All are held against the reference or check of `step`; if it has neither, against a plain call of it. A compiled
    variant that raises is put into `left`, with its root: whether a step compiles is asked elsewhere. No checks where
    none of them had anything to compare.
    """
    checks = []
    for variant in variants:
        try:
            found = check(variant, step, sets[0], f"call of {variant.name}")
            with contextlib.nullcontext() if variant.compile else fresh_memory_is_nan():
                found += check(variant, step, sets[-1], f"call 2 of {variant.name}")
        except Exception as error:
            if not variant.compile:
                raise
            left[variant.name] = f"does not compile: {root_of(error, ctx)}"
            continue
        checks += found
    return [one.model_dump() for one in checks] if any(map(compared, checks)) else []


def check(variant: Variant, step, inputs: tuple, name: str) -> list[Check]:
    """One call from restored state: its outputs against the step's truth, its state against a plain call."""
    import torch

    side = variant.side
    side.begin()
    state, given = clone(side.state()), clone(inputs)
    output = side.call(variant.fn, inputs)
    got, after = clone(outputs_by_name(output)), clone(side.state())
    copy_into(side.state(), state)
    if step.check:
        with torch.no_grad():
            good = truth(step.check(given, output))
        return [Check(call=name, output=CHECK, error=None, tolerance=0.0, ok=good)]
    found = []
    if step.reference:
        with torch.no_grad():
            want = outputs_by_name(step.reference(*given), "reference: returned")
            found = compare(name, got, want, step.tolerance)
        copy_into(side.state(), state)
    if after or not step.reference:
        plain = outputs_by_name(side.call(step.fn if side.step is step else side.step.fn, given))
        wanted = {f"state.{k}": v for k, v in clone(side.state()).items()}
        tolerance = step.tolerance if isinstance(step.tolerance, float) else None
        found += compare(name, {f"state.{k}": v for k, v in after.items()}, wanted, tolerance)
        if not step.reference:
            found += compare(name, got, plain, step.tolerance)
    return found


def root_of(error: Exception, ctx) -> str:
    """The innermost exception as one line: `900 cudaErrorStreamCaptureUnsupported: ...`, or its type."""
    from ..probes.exceptions import chain_of

    root = chain_of(error, ctx.run, ctx.folders)[-1]
    text = root.text.strip().splitlines() or [""]
    return f"{root.code} {root.name}" if root.code else f"{root.type}: {text[0]}"
