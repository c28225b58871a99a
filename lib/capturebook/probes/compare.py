"""Compare what a step gave with what it should have given; copies of values, and writing them back."""

from ..records import Check, finite
from ..subjects.loader import SubjectError


def compare(call: str, got: dict, want: dict, tolerance) -> list[Check]:
    """One Check for each output of `want`. error = max|got - want| / max|want|, in float64.

    Where `want` is NaN or infinite, `got` must be the same; a NaN of `got` elsewhere is an infinite error (None).
    Raises SubjectError when `want` names an output that `got` lacks, or `tolerance` has none for one of them.
    """
    want = _renamed(got, want)
    checks = []
    for index, (name, reference) in enumerate(want.items()):
        if name not in got:
            raise SubjectError(f"reference: gives {name!r}, which fn does not return; it returns {_names(got)}")
        allowed = _tolerance(tolerance, index, name, got[name])
        error = _error(got[name], reference)
        checks.append(Check(call=call, output=name, error=finite(error), tolerance=allowed, ok=bool(error <= allowed)))
    return checks


def _renamed(got: dict, want: dict) -> dict:
    """A reference that gives a tensor where fn gives a tuple of one, or the other way round, means the same output."""
    if len(got) == len(want) == 1 and set(got) | set(want) <= {"out", "out0"}:
        return dict(zip(got, want.values()))
    return want


def _tolerance(tolerance, index: int, name: str, got) -> float:
    if tolerance is None:
        return default_tolerance(got.dtype)
    if isinstance(tolerance, dict):
        if name not in tolerance:
            raise SubjectError(f"tolerance: none for output {name!r}; given for {_names(tolerance)}")
        return float(tolerance[name])
    if isinstance(tolerance, (list, tuple)):
        if index >= len(tolerance):
            raise SubjectError(f"tolerance: {len(tolerance)} given; output {name!r} is number {index + 1}")
        return float(tolerance[index])
    return float(tolerance)


def default_tolerance(dtype) -> float:
    """What a step's output may be off where the step does not say: some units in the last place of its dtype."""
    import torch

    if dtype.is_floating_point and dtype.itemsize == 1:
        return 0.15
    return {torch.bfloat16: 2e-2, torch.float16: 5e-3}.get(dtype, 1e-3)


def _names(values: dict) -> str:
    return ", ".join(map(str, values)) or "nothing"


def _error(got, want) -> float:
    import torch

    if got.shape != want.shape:
        return float("inf")
    wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
    got, want = got.detach().to(wide), want.detach().to(got.device, wide)
    if want.numel() == 0:
        return 0.0
    odd = ~torch.isfinite(want)
    same = (got == want) | (got.isnan() & want.isnan())
    if not bool(same[odd].all()):
        return float("inf")
    got, want = got[~odd], want[~odd]
    if want.numel() == 0:
        return 0.0
    difference = (got - want).abs().max().item()
    scale = want.abs().max().item()
    return float("inf") if difference != difference else difference / (scale if scale > 0 else 1.0)


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


def same_bits(one, other) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes; NaN equals itself, 0.0 is not -0.0."""
    import torch

    if one.numel() == 0:
        return True
    flat = [x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return torch.equal(*flat)
