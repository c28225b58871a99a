"""Triton pieces that put one token into a cache of latents: its norm and rotation, and both layouts."""

import triton
import triton.language as tl

from .tiles import power_of_two, rotate, scale_exponents, sum_of_squares, to_e4m3


@triton.jit
def store_entry(
    tile,  # [1, 512] fp32
    cache,  # FP8: pages of bytes as sparse_mla.formats has them; else rows of 512 bf16
    slot,
    PAGE: tl.constexpr,  # tokens a page
    STRIDE: tl.constexpr,  # bytes a page
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
):
    """Writes one token into its slot of a cache."""
    slot = slot.to(tl.int64)
    if FP8:
        groups = tl.reshape(tile, [8, 64])
        exponent = scale_exponents(groups, 0.0448)  # no scale below 1e-4
        page = cache + slot // PAGE * STRIDE
        row = page + slot % PAGE * 576
        group, column = tl.arange(0, 8), tl.arange(0, 64)
        at = group[:, None] * 64 + column[None, :]
        nope = to_e4m3(groups * power_of_two(254 - exponent)[:, None], E4M3)
        tl.store(row + at, nope, mask=group[:, None] < 7)
        tl.store(page + PAGE * 576 + slot % PAGE * 8 + group, exponent.to(tl.uint8), mask=group < 7)
        rope = (row + 448).to(tl.pointer_type(tl.bfloat16))
        tl.store(rope + at - 448, groups.to(tl.bfloat16), mask=group[:, None] == 7)
    else:
        at = tl.arange(0, 512)
        tl.store(cache + slot * 512 + at, tl.reshape(tile, [512]).to(cache.dtype.element_ty))


@triton.jit
def norm_rotate_store(
    source, gain, table, position, cache, slot, PAGE: tl.constexpr, STRIDE: tl.constexpr, FP8: tl.constexpr,
    E4M3: tl.constexpr,
):  # fmt: skip
    """RMSNorm and rotation of one token's 512 values at `source`, into a cache."""
    at = tl.arange(0, 512)[None, :]
    tile = tl.load(source + at).to(tl.float32)
    tile *= tl.rsqrt(sum_of_squares(tile) / 512 + 1e-6) * tl.load(gain + at)
    store_entry(rotate(tile, table, position, False, 1, 512, 64), cache, slot, PAGE, STRIDE, FP8, E4M3)
