"""mHC after a sublayer: the new streams."""

import triton
import triton.language as tl


@triton.jit
def expand_kernel(
    streams,  # [B, 4, D] bf16
    out,  # [B, D] bf16, what the sublayer returned
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    new,  # [B, 4, D] bf16
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program per (token, part of D)."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    line = streams + token * 4 * D + at
    x0 = tl.load(line).to(tl.float32)
    x1 = tl.load(line + D).to(tl.float32)
    x2 = tl.load(line + 2 * D).to(tl.float32)
    x3 = tl.load(line + 3 * D).to(tl.float32)
    y = tl.load(out + token * D + at).to(tl.float32)
    weights = comb + token * 16
    for copy in tl.static_range(4):  # the matrix is used transposed: a row of it is what one copy gives
        value = tl.load(after + token * 4 + copy) * y
        value += tl.load(weights + copy) * x0 + tl.load(weights + 4 + copy) * x1
        value += tl.load(weights + 8 + copy) * x2 + tl.load(weights + 12 + copy) * x3
        tl.store(new + (token * 4 + copy) * D + at, value.to(new.dtype.element_ty))
