"""A query's heads before the attention, or before the indexer: norm and rotation."""

import triton
import triton.language as tl

from .tiles import rotate, wait_for_previous


@triton.jit(do_not_specialize=["heads", "padded"])
def q_heads_kernel(
    q,  # [B, heads, D] bf16
    table,  # [positions, 64] fp32
    positions,  # [B] int32
    rotated,  # [B, padded, D] bf16
    heads,
    padded,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (token, HEADS heads): a head over its root mean square (NORM), rotated; 0 beyond q's."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    at = tl.arange(0, D)[None, :]
    wait_for_previous(PDL)
    line = q + (token * heads + head)[:, None] * D + at
    tile = tl.load(line, mask=head[:, None] < heads, other=0.0).to(tl.float32)
    if NORM:
        tile *= tl.rsqrt(tl.sum(tile * tile, 1) / D + 1e-6)[:, None]
    tile = rotate(tile, table, tl.load(positions + token), False, HEADS, D, 64)
    target = rotated + (token * padded + head)[:, None] * D + at
    tl.store(target, tile.to(rotated.dtype.element_ty), mask=head[:, None] < padded)
