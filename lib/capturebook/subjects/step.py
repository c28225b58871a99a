"""The Step contract: what a user hands over so that capturebook can probe it.

    def build(batch: int = 8) -> Step:
        def fn(x): ...
        def make_inputs(seed): ...
        return Step(fn=fn, make_inputs=make_inputs)

`build(**options)` runs in the probe's own process; its keyword parameters are the options and factors it takes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


class SubjectError(ValueError):
    """The subject cannot be loaded, or breaks the Step contract. One line says how."""


@dataclass
class Step:
    """One decode step (or kernel call), and what is needed to judge it. Only the first two fields are required.

    fn(*inputs) -> tensor, tuple, dict or None; a function or an nn.Module, whose buffers are its state if no other is
    declared. make_inputs(seed) -> tuple: tensors (device or pinned host) whose shapes, dtypes and strides are fixed
    while values, lengths and indices vary with the seed; Python values the same for all seeds.
    state() -> {name: tensor}: all that outlives a call, asked anew each time; snapshotted, restored, compared.
    advance(i): the caller's host work before call or replay i; one counter over every call, the captured one too, and
    every replay. around(): the context for warm-up, capture and eager calls (default torch.no_grad).
    compiled(compile) -> fn: where torch.compile goes, if not on the whole step; it gets a callable that compiles what
    it is given as the arm says. reference(*inputs) -> like fn's output; check(inputs, outputs) -> bool instead, where
    outputs is what fn returned. tolerance: relative to max|reference|, one for all outputs or one each; not given, it
    goes by each output's dtype: 1e-3, float16 5e-3, bfloat16 2e-2, 8-bit floating point 0.15. Integers and bools must
    be equal then (a reference in floating point: next to it), so what a rounding may turn, as an index, needs a check.
    factors: the arm's factors that `build` makes use of, where its signature does not tell (it takes **options).
    cost(*inputs) -> (bytes, flops): what a call must move and compute whatever the kernel, for the sweep's floor; not
    given, the floor is made of inputs, outputs and state, each byte moved once.
    twin: a Step with torch ops in place of the Triton calls and nothing else changed. kernels: the Triton kernels
    by name (else discovered). pinned: {kernel name: Triton config keywords} for tuning=pinned (else the winner of
    a live run). drive(h): the step's own protocol, on a probes.handle.Handle. close(): called at the end.
    """

    fn: Callable[..., Any]
    make_inputs: Callable[[int], tuple]
    state: Callable[[], dict] | None = None
    advance: Callable[[int], None] | None = None
    around: Callable[[], AbstractContextManager] | None = None
    compiled: Callable[[Callable], Callable] | None = None
    reference: Callable[..., Any] | None = None
    check: Callable[[tuple, Any], bool] | None = None
    tolerance: float | list[float] | dict[str, float] | None = None
    cost: Callable[..., tuple[int, int]] | None = None
    twin: "Step | None" = None
    kernels: dict[str, Any] = field(default_factory=dict)
    pinned: dict[str, dict] = field(default_factory=dict)
    factors: tuple[str, ...] | None = None
    drive: Callable[[Any], None] | None = None
    close: Callable[[], None] | None = None


def outputs_by_name(value, what: str = "step: fn returned") -> dict[str, Any]:
    """fn's result as {name: tensor}: "out" for one tensor, "out0", "out1"... for a tuple, the keys of a dict.

    What lies deeper has its path for a name ("out1.0"); values that are no tensors are left out. Raises SubjectError,
    whose line begins with `what`, for anything else.
    """
    import torch

    if value is None:
        return {}
    if isinstance(value, torch.Tensor):
        return {"out": value}
    if not isinstance(value, (dict, tuple, list)):
        raise SubjectError(f"{what} {type(value).__name__}; allowed: tensor, tuple, list, dict or None")
    return dict(_named(value, "" if isinstance(value, dict) else "out"))


def _named(value, prefix: str):
    import torch

    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _named(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, (tuple, list)):
        for index, inner in enumerate(value):
            yield from _named(inner, f"out{index}" if prefix == "out" else f"{prefix}.{index}")
