"""mHC's projection, of the streams or of what they become: after one sublayer and before the next in one kernel."""

import triton
import triton.language as tl

from .tiles import place_of


@triton.jit(do_not_specialize=["batch"])
def project_kernel(
    streams,  # [B, 4, D] bf16
    out,  # [B, D] bf16, what the sublayer returned
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    projection,  # [MIXES, 4 * D] fp32
    new,  # [B, 4, D] bf16
    partial,  # [SPLITS, B, COLUMNS] fp32: products and sum of squares, see tiles.place_of
    batch,
    D: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EXPAND: tl.constexpr,  # else out, after, comb and new are not looked at, and streams is projected
    DOT_FP32: tl.constexpr,  # one product of fp32 operands, for Triton's interpreter only
):
    """One program per (tile of tokens, split of D), all four copies in it."""
    tokens = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    split = tl.program_id(1)
    columns = tl.arange(0, COLUMNS)
    inside = (tokens < batch)[:, None]
    wide = tokens.to(tl.int64)[:, None]
    if EXPAND:
        # A tile of the streams' own shape: what is summed out of a row is then where the row's values are, and nothing
        # goes through shared memory. Loaded one by one, a token's 20 weights took most of the kernel's time.
        weights = tl.load(comb + wide * 16 + columns[None, :], mask=inside & (columns < 16)[None, :], other=0.0)
        last = (columns >= 16) & (columns < 20)
        weights += tl.load(after + wide * 4 + columns[None, :] - 16, mask=inside & last[None, :], other=0.0)
    squares = tl.zeros([BLOCK_B, BLOCK_D], dtype=tl.float32)
    products = tl.zeros([BLOCK_B, COLUMNS], dtype=tl.float32)
    for start in tl.range(0, D // SPLITS, BLOCK_D):
        d = split * (D // SPLITS) + start + tl.arange(0, BLOCK_D)
        line = streams + wide * 4 * D + d[None, :]
        x0 = tl.load(line, mask=inside, other=0.0)
        x1 = tl.load(line + D, mask=inside, other=0.0)
        x2 = tl.load(line + 2 * D, mask=inside, other=0.0)
        x3 = tl.load(line + 3 * D, mask=inside, other=0.0)
        # All reads stand before the first write, which no later one could pass: a write may be to what it reads.
        at = projection + columns[None, :] * (4 * D) + d[:, None]
        w0 = tl.load(at, mask=columns[None, :] < MIXES, other=0.0)
        w1 = tl.load(at + D, mask=columns[None, :] < MIXES, other=0.0)
        w2 = tl.load(at + 2 * D, mask=columns[None, :] < MIXES, other=0.0)
        w3 = tl.load(at + 3 * D, mask=columns[None, :] < MIXES, other=0.0)
        if EXPAND:
            y = tl.load(out + wide * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
        for copy in tl.static_range(4):  # the matrix is used transposed: a row of it is what one copy gives
            if EXPAND:
                value = column(weights, columns, 16 + copy) * y
                value += column(weights, columns, copy) * x0 + column(weights, columns, 4 + copy) * x1
                value += column(weights, columns, 8 + copy) * x2 + column(weights, columns, 12 + copy) * x3
                stored = value.to(new.dtype.element_ty)
                tl.store(new + (wide * 4 + copy) * D + d[None, :], stored, mask=inside)
            else:
                stored = x0 if copy == 0 else x1 if copy == 1 else x2 if copy == 2 else x3
            x = stored.to(tl.float32)  # the next sublayer sees what is stored
            squares += x * x
            w = w0 if copy == 0 else w1 if copy == 1 else w2 if copy == 2 else w3
            if DOT_FP32:
                products = tl.dot(x, w, products, input_precision="ieee")
            else:  # three products with bf16 keep all of w's 24 digits
                high = w.to(tl.bfloat16)
                rest = w - high.to(tl.float32)
                middle = rest.to(tl.bfloat16)
                low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
                products = tl.dot(stored, high, tl.dot(stored, middle, tl.dot(stored, low, products)))
    target = partial + (split * batch + tokens)[:, None] * COLUMNS + place_of(columns)[None, :]
    summed = tl.sum(squares, 1)
    tl.store(target, tl.where(columns[None, :] == MIXES, summed[:, None], products), mask=inside)


@triton.jit
def column(tile, columns, number: tl.constexpr):
    """[B, 1]: one column of a tile [B, COLUMNS]."""
    return tl.sum(tl.where(columns[None, :] == number, tile, 0.0), 1)[:, None]
