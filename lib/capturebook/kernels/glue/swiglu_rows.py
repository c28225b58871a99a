"""SwiGLU with its clamp, into bf16 or into fp8 with a scale for 128 values."""

import triton
import triton.language as tl

from .tiles import store_groups, wait_for_previous


@triton.jit(do_not_specialize=["rows"])
def swiglu_kernel(
    x,  # [rows, 2 * D] bf16: gate, and up behind it
    values,  # [rows, D] e4m3 bytes, or bf16
    scales,  # [D / 128, rows] fp32
    limit,
    rows,
    D: tl.constexpr,
    GROUPS: tl.constexpr,
    FP8: tl.constexpr,  # else scales are not looked at
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (row, GROUPS groups of 128): silu(min(gate, limit)) * up, clamped to +-limit."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    there = group[:, None] < D // 128
    wait_for_previous(PDL)
    gate = tl.load(x + row * 2 * D + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * D + D + at, mask=there, other=0.0).to(tl.float32)
    limit = tl.cast(limit, tl.float32)  # Inductor passes a Python float as fp64
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    store_groups(gate * tl.sigmoid(gate) * up, values, scales, row, group, rows, D, FP8, E4M3)
