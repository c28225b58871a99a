"""mHC after one sublayer and before the next in one kernel: the new streams, and the projection of what they are."""

import triton
import triton.language as tl

from .tiles import wait_for_previous


@triton.jit
def expand_project_kernel(
    streams,  # [B, 4, D] bf16
    out,  # [B, D] bf16, what the sublayer returned
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    projection,  # [MIXES, 4 * D] fp32, of the next sublayer
    new,  # [B, 4, D] bf16
    partial,  # [SPLITS, B, COLUMNS] fp32: MIXES products, and behind them the sum of squares
    batch,
    D: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_D: tl.constexpr,
    DOT_FP32: tl.constexpr,  # one product of fp32 operands, for Triton's interpreter only
    PDL: tl.constexpr,
):
    """One program per (tile of tokens, split of D), all four copies in it."""
    tokens = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    split = tl.program_id(1)
    columns = tl.arange(0, COLUMNS)
    inside = tokens < batch
    wide = tokens.to(tl.int64)
    squares = tl.zeros([BLOCK_B], dtype=tl.float32)
    products = tl.zeros([BLOCK_B, COLUMNS], dtype=tl.float32)
    wait_for_previous(PDL)
    for start in tl.range(0, D // SPLITS, BLOCK_D):
        d = split * (D // SPLITS) + start + tl.arange(0, BLOCK_D)
        line = streams + wide[:, None] * 4 * D + d[None, :]
        x0 = tl.load(line, mask=inside[:, None], other=0.0).to(tl.float32)
        x1 = tl.load(line + D, mask=inside[:, None], other=0.0).to(tl.float32)
        x2 = tl.load(line + 2 * D, mask=inside[:, None], other=0.0).to(tl.float32)
        x3 = tl.load(line + 3 * D, mask=inside[:, None], other=0.0).to(tl.float32)
        y = tl.load(out + wide[:, None] * D + d[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        for copy in tl.static_range(4):  # the matrix is used transposed: a row of it is what one copy gives
            weights = comb + wide * 16 + copy
            value = tl.load(after + wide * 4 + copy, mask=inside, other=0.0)[:, None] * y
            value += tl.load(weights, mask=inside, other=0.0)[:, None] * x0
            value += tl.load(weights + 4, mask=inside, other=0.0)[:, None] * x1
            value += tl.load(weights + 8, mask=inside, other=0.0)[:, None] * x2
            value += tl.load(weights + 12, mask=inside, other=0.0)[:, None] * x3
            stored = value.to(new.dtype.element_ty)
            tl.store(new + (wide * 4 + copy)[:, None] * D + d[None, :], stored, mask=inside[:, None])
            x = stored.to(tl.float32)  # the next sublayer sees what is stored
            at = projection + columns[None, :] * (4 * D) + copy * D + d[:, None]
            w = tl.load(at, mask=columns[None, :] < MIXES, other=0.0)
            if DOT_FP32:
                products = tl.dot(x, w, products, input_precision="ieee")
            else:  # three products with bf16 keep all of w's 24 digits
                high = w.to(tl.bfloat16)
                rest = w - high.to(tl.float32)
                middle = rest.to(tl.bfloat16)
                low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
                products = tl.dot(stored, high, tl.dot(stored, middle, tl.dot(stored, low, products)))
            squares += tl.sum(x * x, 1)
    target = partial + (split * batch + tokens)[:, None] * COLUMNS + columns[None, :]
    tl.store(target, tl.where(columns[None, :] == MIXES, squares[:, None], products), mask=inside[:, None])
