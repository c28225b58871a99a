"""Rows into fp8 with a scale for 128 values."""

import triton
import triton.language as tl

from .tiles import store_groups, wait_for_previous


@triton.jit(do_not_specialize=["rows"])
def quantise_kernel(
    x,  # [rows, D] bf16
    values,  # [rows, D] e4m3 bytes
    scales,  # [D / 128, rows] fp32
    rows,
    D: tl.constexpr,
    GROUPS: tl.constexpr,
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (row, GROUPS groups of 128)."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    wait_for_previous(PDL)
    tile = tl.load(x + row * D + at, mask=group[:, None] < D // 128, other=0.0).to(tl.float32)
    store_groups(tile, values, scales, row, group, rows, D, True, E4M3)
