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
    # All reads stand before the first write, which no later one could pass: a write may be to what it reads.
    weights, of_out = (), ()
    for place in tl.static_range(16):
        weights = weights + (tl.load(comb + token * 16 + place),)
    for copy in tl.static_range(4):
        of_out = of_out + (tl.load(after + token * 4 + copy),)
    for copy in tl.static_range(4):  # the matrix is used transposed: a row of it is what one copy gives
        value = of_out[copy] * y
        value += weights[copy] * x0 + weights[4 + copy] * x1
        value += weights[8 + copy] * x2 + weights[12 + copy] * x3
        tl.store(new + (token * 4 + copy) * D + at, value.to(new.dtype.element_ty))
