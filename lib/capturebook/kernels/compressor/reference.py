"""A compressor in torch ops: a token into its ring, and the entry into the cache where it ends a window.

In fp32 inside, in float64 for float64 rows: the eager code, the reference, and what the operator does on a CPU.
"""

import torch
from torch import Tensor

from ..glue.reference import EPS
from .stores import store, store_keys


def compress_reference(
    projected: Tensor,
    ring: Tensor,
    bias: Tensor,
    gain: Tensor,
    table: Tensor,
    positions: Tensor,
    cache: Tensor,
    slots: Tensor,
    keys: bool = False,
) -> None:
    """As `compress`, for any sizes, in any floating-point dtype. All requests pool: no shape may follow data."""
    ratio = len(bias)
    ring.index_put_((torch.arange(len(ring), device=ring.device), positions % ring.shape[1]), projected.to(ring.dtype))
    rows = norm(pool(ring, bias, positions), gain)
    rows, ends = rotate(rows, table, positions // ratio * ratio), (positions + 1) % ratio == 0
    (store_keys if keys else store)(cache, slots, rows, ends)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What is computed in."""
    return torch.promote_types(dtype, torch.float32)


def norm(rows: Tensor, gain: Tensor | None = None) -> Tensor:
    """RMSNorm over the last dimension, rounded once, to the rows' dtype."""
    x = rows.to(wide(rows.dtype))
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    return (x if gain is None else x * gain).to(rows.dtype)


def rotate(rows: Tensor, table: Tensor, positions: Tensor, inverse: bool = False) -> Tensor:
    """Rows [B, ..., D] turned by their request's position [B], in their dtype; inverse: turned back.

    Computed in fp32, or in float64 for float64 rows.
    """
    half = table.shape[1] // 2
    plain, turned = rows[..., : -2 * half], rows[..., -2 * half :]
    wide = torch.promote_types(rows.dtype, torch.float32)
    angles = table[positions].to(wide).view(len(rows), *([1] * (rows.dim() - 2)), 2 * half)
    cos, sin = angles[..., :half], angles[..., half:]
    sin = -sin if inverse else sin
    even, odd = turned.to(wide).unflatten(-1, (half, 2)).unbind(-1)
    new = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return torch.cat((plain, new.to(rows.dtype)), dim=-1)


def pool(ring: Tensor, bias: Tensor, positions: Tensor) -> Tensor:
    """[B, D]: the entry that the window with each request's token gives, if the token closes it (else of no use).

    ring [B, tokens, 2 * series * D]: a token's values and gates, at its position modulo the ring's length. bias [ratio,
    series * D] is added to the gates. With two series (CSA) the second is of the current window and the first of the
    one before it, which the first window of a context does not have. Softmax over all tokens, value by value.
    """
    ratio, width = bias.shape
    tokens = ring.shape[1]
    place = torch.arange(tokens, device=ring.device)
    values, gates = ring.to(wide(ring.dtype)).chunk(2, dim=-1)
    gates = gates + bias[place % ratio]
    if tokens > ratio:
        current = (place // ratio == (positions // ratio % 2)[:, None])[:, :, None]
        before, now = values.chunk(2, dim=-1)
        values = torch.where(current, now, before)
        before, now = gates.chunk(2, dim=-1)
        before = before.masked_fill((positions < ratio)[:, None, None], float("-inf"))
        gates = torch.where(current, now, before)
    return (values * gates.softmax(dim=1)).sum(1).to(ring.dtype)
