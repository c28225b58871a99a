"""How far a tensor is from what it should be. Plain torch: an exported script carries these functions as text."""


def relative_error(got, want, exact: bool = False) -> float | None:
    """max|got - want| / max|want| in float64, infinite for another shape or a NaN; None where there is nothing to tell.

    Where `want` is NaN or infinite, `got` must be the same; where it is so throughout, or has no element, the result
    is None. exact: of integers beside floating point, either one next to the value is right.
    """
    import torch

    if got.shape != want.shape:
        return float("inf")
    got, want = got.detach(), want.detach().to(got.device)
    if is_whole(got.dtype) and is_whole(want.dtype):
        return integer_error(got, want)
    whole = is_whole(got.dtype)
    wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    odd = ~torch.isfinite(want)
    same = (got == want) | (got.isnan() & want.isnan())
    if not bool(same[odd].all()):
        return float("inf")
    got, want = got[~odd], want[~odd]
    if want.numel() == 0:
        return None
    difference = (got - want).abs().max().item()
    if difference != difference:
        return float("inf")
    if exact and whole:
        difference //= 1
    return difference / (want.abs().max().item() or 1.0)


def integer_error(got, want) -> float | None:
    """The same for integers and truth values: float64 cannot tell 2^60 from 2^60 + 1."""
    import torch

    if want.numel() == 0:
        return None
    if got.dtype == want.dtype and same_bits(got, want):
        return 0.0
    near = (got.to(torch.int64) - want.to(torch.int64)).abs().double()  # exact, unless it leaves the range of int64
    wide = (got.double() - want.double()).abs()
    difference = torch.where(wide < 2.0**62, near, wide).max().item()
    return difference / (want.double().abs().max().item() or 1.0)


def is_whole(dtype) -> bool:
    """Integers and truth values."""
    return not (dtype.is_floating_point or dtype.is_complex)


def default_tolerance(dtype) -> float:
    """What an output may be off where the step does not say: some units in the last place, of integers nothing."""
    import torch

    if is_whole(dtype):
        return 0.0
    if dtype.is_floating_point and dtype.itemsize == 1:
        return 0.15
    return {torch.bfloat16: 2e-2, torch.float16: 5e-3}.get(dtype, 1e-3)


def same_bits(one, other) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes; NaN equals itself, 0.0 is not -0.0."""
    import torch

    if one.numel() == 0:
        return True
    flat = [x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return torch.equal(*flat)
