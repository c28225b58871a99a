"""Compare what a step gave with what it should have given; copies of values, and writing them back."""

from ..records import Check, finite
from ..subjects.step import SubjectError
from .metric import default_tolerance, relative_error

CHECK = "check"
"""Output of the Check that holds what the step's own check said."""


def compare(call: str, got: dict, want: dict, tolerance) -> list[Check]:
    """One Check for each output of `want`. error = max|got - want| / max|want|, in float64, of integers exactly.

    Where `want` is NaN or infinite, `got` must be the same; a NaN of `got` elsewhere is an infinite error (None). An
    error of None in a check that is ok: there was nothing to compare, see `compared`.
    Raises SubjectError when `want` names an output that `got` lacks, or `tolerance` has none for one of them.
    """
    want = _renamed(got, want)
    checks = []
    for index, (name, reference) in enumerate(want.items()):
        if name not in got:
            raise SubjectError(f"reference: gives {name!r}, which fn does not return; it returns {_names(got)}")
        given = _tolerance(tolerance, index, name)
        allowed = default_tolerance(got[name].dtype) if given is None else float(given)
        off = relative_error(got[name], reference, exact=given is None)
        ok = off is None or off <= allowed
        said = None if off is None else finite(off)
        checks.append(Check(call=call, output=name, error=said, tolerance=allowed, ok=ok))
    return checks


def compared(check: Check) -> bool:
    """Whether a check has told anything: not where its reference had no element, or no finite one."""
    return not check.ok or check.error is not None or check.output == CHECK


def truth(returned) -> bool:
    """What a step's check returned. Raises SubjectError for anything but a truth value: a text is true, a pair too."""
    of = str(getattr(returned, "dtype", ""))
    if isinstance(returned, bool) or of in ("bool", "torch.bool") and returned.ndim == 0:
        return bool(returned)
    more = f" of {of}, shape {list(getattr(returned, 'shape', ()))}" if of else ""
    raise SubjectError(f"check: returned {type(returned).__name__}{more}; allowed: a bool")


def _renamed(got: dict, want: dict) -> dict:
    """A reference that gives a tensor where fn gives a tuple of one, or the other way round, means the same output."""
    if len(got) == len(want) == 1 and set(got) | set(want) <= {"out", "out0"}:
        return dict(zip(got, want.values()))
    return want


def _tolerance(tolerance, index: int, name: str):
    """The one given for an output, None where it goes by the dtype."""
    if isinstance(tolerance, dict):
        if name not in tolerance:
            raise SubjectError(f"tolerance: none for output {name!r}; given for {_names(tolerance)}")
        return tolerance[name]
    if isinstance(tolerance, (list, tuple)):
        if index >= len(tolerance):
            raise SubjectError(f"tolerance: {len(tolerance)} given; output {name!r} is number {index + 1}")
        return tolerance[index]
    return tolerance


def _names(values: dict) -> str:
    return ", ".join(map(str, values)) or "nothing"


def clone(value):
    """Tensors of a dict, tuple, list (or what is nested in them) cloned without their history; the rest as it is."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda x: x.detach().clone(), value)


def copy_into(targets: dict, sources: dict) -> None:
    """Write snapshots back into live tensors of the same shape."""
    import torch

    with torch.no_grad():
        for name, source in sources.items():
            if name in targets and targets[name].shape == source.shape:
                targets[name].copy_(source)
