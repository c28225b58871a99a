"""Compare what a step gave with what it should have given."""

from ..records import Check, finite


def compare(call: str, got: dict, want: dict, tolerance) -> list[Check]:
    """One Check for each output of `want`. error = max|got - want| / max|want|, in float64.

    Where `want` is NaN or infinite, `got` must be the same; a NaN of `got` elsewhere is an infinite error (None).
    """
    checks = []
    for index, (name, reference) in enumerate(want.items()):
        if isinstance(tolerance, dict):
            allowed = tolerance[name]
        else:
            allowed = tolerance[index] if isinstance(tolerance, (list, tuple)) else tolerance
        error = _error(got[name], reference) if name in got else float("inf")
        checks.append(
            Check(
                call=call, output=name, error=finite(error), tolerance=float(allowed), ok=bool(error <= float(allowed))
            )
        )
    return checks


def _error(got, want) -> float:
    import torch

    if got.shape != want.shape:
        return float("inf")
    got, want = got.detach().to(torch.float64), want.detach().to(got.device, torch.float64)
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
    """Tensors of a dict, tuple or list cloned; anything else as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: clone(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(clone(v) for v in value)
    return value


def copy_into(targets: dict, sources: dict) -> None:
    """Write snapshots back into live tensors of the same shape."""
    for name, source in sources.items():
        if name in targets and targets[name].shape == source.shape:
            targets[name].copy_(source)
