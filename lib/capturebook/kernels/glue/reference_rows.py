"""Norms, rotation, SwiGLU, fp8 values and cache entries in torch ops: the eager code.

In float64 it is the reference; in float32, rounded to bf16 behind it, the torch twin. No host synchronisation, so it
can be captured.
"""

import torch
from torch import Tensor

from ..sparse_mla import formats

HEAD, ROPE, GROUP = 512, 64, 128
"""Values of a head, those at its end that are rotated, and how many values share a scale."""

EPS = 1e-6
LEAST = 1e-4
"""Least amax of a group."""


def rms_norm_reference(x: Tensor, gain: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
    """x [..., D] over its root mean square, times gain [D] where there is one, in `dtype`."""
    x = x.to(dtype)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    return x if gain is None else x * gain.to(dtype)


def rotate_reference(
    x: Tensor, table: Tensor, positions: Tensor, inverse: bool = False, dtype: torch.dtype = torch.float64
) -> Tensor:
    """x [B, ..., D] in `dtype`, the last 64 values of each head turned by the angles of positions [B].

    table [P, 64] fp32: cosines of a position's 32 angles, and behind them the sines. Pairs lie side by side.
    """
    x = x.to(dtype)
    rows = table[positions.long()].to(dtype).unflatten(-1, (2, ROPE // 2))
    cos, sin = rows.reshape(len(x), *[1] * (x.dim() - 2), 2, ROPE // 2).unbind(-2)
    even, odd = x[..., -ROPE:].unflatten(-1, (ROPE // 2, 2)).unbind(-1)
    if inverse:
        sin = -sin
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return torch.cat((x[..., :-ROPE], turned), dim=-1)


def rotation_table(positions: int, theta: float = 10000.0, device: str | torch.device = "cpu") -> Tensor:
    """The table of `rotate_reference` for plain RoPE: angles position * theta ** (-2 i / 64)."""
    inverse = theta ** (-torch.arange(0, ROPE, 2, dtype=torch.float64) / ROPE)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * inverse
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float().to(device)


def q_heads_reference(
    q: Tensor, table: Tensor, positions: Tensor, heads: int | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """q [B, H, 512]: each head over its root mean square, rotated; then zero heads up to `heads`."""
    rotated = rotate_reference(rms_norm_reference(q, None, dtype), table, positions, dtype=dtype)
    return torch.nn.functional.pad(rotated, (0, 0, 0, (heads or q.shape[1]) - q.shape[1]))


def swiglu_reference(x: Tensor, limit: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """silu(gate) * up of x [..., 2 F], gate first: gate at most `limit`, up within +-limit."""
    gate, up = x.to(dtype).chunk(2, dim=-1)
    return torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def quantise_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    """(values [N, D] e4m3, scales [N, D / 128] fp32, column-major) of finite x [N, D].

    A scale is the least power of two with amax <= 448 * scale, amax at least 1e-4: as the model's quantiser has it.
    """
    groups = x.float().unflatten(-1, (-1, GROUP))
    mantissa, exponent = torch.frexp(groups.abs().amax(-1).clamp_min(LEAST))
    exponent = torch.where(mantissa <= 0.875, exponent - 9, exponent - 8)  # 448 is 0.875 * 2 ** 9
    scales = ((exponent + 127) << 23).view(torch.float32)
    values = (groups / scales[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    return values, scales.T.contiguous().T


def dequantise(values: Tensor, scales: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """What fp8 values and their scales stand for, exact in fp32 and beyond."""
    return (values.to(dtype).unflatten(-1, (-1, GROUP)) * scales.to(dtype)[..., None]).flatten(-2)


def store_reference(rows: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Writes rows [B, 512] to `slots` [B] of a cache of either format, in place; negative slots take nothing.

    The row of a negative slot writes what the row with the largest slot writes, to the same place; if all are
    negative, slot 0 is written with what it holds.
    """
    last = slots.argmax(0, keepdim=True)  # a tensor of one: a number would have to come to the host
    kept = slots < 0
    slots = torch.where(kept, slots[last], slots).long()
    rows = torch.where(kept[:, None], rows[last], rows)
    target, none = slots.clamp_min(0), (slots < 0)[:, None]
    if formats.format_of(cache) != "fp8":
        cache[target] = torch.where(none, cache[target], rows.to(cache.dtype))
        return
    page, stride = formats.page_tokens(cache.shape[1]), cache.shape[1]
    used = formats.TOKEN_BYTES - 1  # the eighth byte of the scales is nobody's
    entry = formats.quantise(rows, 1)[:, :used]
    start, token = target // page * stride, target % page
    byte = torch.arange(used, device=cache.device)
    scale = byte - formats.ROW_BYTES
    at = torch.where(
        byte < formats.ROW_BYTES,
        (start + token * formats.ROW_BYTES)[:, None] + byte,
        (start + page * formats.ROW_BYTES + token * formats.SCALE_BYTES)[:, None] + scale,
    )
    flat = cache.view(-1)
    flat[at] = torch.where(none, flat[at], entry)
