"""The attention's output before its projection: rotated back."""

import triton
import triton.language as tl

from .tiles import quantise_groups, rotate, wait_for_previous


@triton.jit(do_not_specialize=["batch", "heads", "padded"])
def out_heads_kernel(
    out,  # [B, padded, 512] bf16
    table,
    positions,
    values,  # [B, heads, 512] e4m3 bytes, or bf16
    scales,  # [heads * 4, B] fp32
    batch,
    heads,
    padded,
    HEADS: tl.constexpr,
    FP8: tl.constexpr,  # else scales are not looked at
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (token, HEADS heads): rotated back, in bf16 or in fp8 with a scale for 128 values."""
    token = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * HEADS
    head = first + tl.arange(0, HEADS)
    at = tl.arange(0, 512)[None, :]
    wait_for_previous(PDL)
    line = out + (token * padded + head)[:, None] * 512 + at
    tile = tl.load(line, mask=head[:, None] < heads, other=0.0).to(tl.float32)
    tile = rotate(tile, table, tl.load(positions + token), True, HEADS, 512, 64)
    target = values + (token * heads + head)[:, None] * 512 + at
    inside = head[:, None] < heads
    if FP8:
        fp8, powers = quantise_groups(tl.reshape(tile, [HEADS * 4, 128]), E4M3)
        tl.store(target, tl.reshape(fp8, [HEADS, 512]), mask=inside)
        group = first * 4 + tl.arange(0, HEADS * 4)
        tl.store(scales + group * batch + token, powers, mask=group < heads * 4)
    else:
        tl.store(target, tile.to(values.dtype.element_ty), mask=inside)
