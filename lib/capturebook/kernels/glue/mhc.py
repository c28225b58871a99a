"""mHC in three kernels: the projection in splits; weights, Sinkhorn and the collapsed stream; the stream after."""

import triton
import triton.language as tl


@triton.jit
def project_kernel(
    streams,  # [B, K] bf16, the four copies side by side
    projection,  # [MIXES, K] fp32
    partial,  # [SPLITS, B, COLUMNS] fp32: MIXES products, and behind them the sum of squares
    batch,
    K: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program per (tile of tokens, split of K)."""
    tokens = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    split = tl.program_id(1)
    columns = tl.arange(0, COLUMNS)
    inside = tokens < batch
    row = tokens.to(tl.int64)[:, None] * K
    products = tl.zeros([BLOCK_B, COLUMNS], dtype=tl.float32)
    squares = tl.zeros([BLOCK_B], dtype=tl.float32)
    for start in tl.range(0, K // SPLITS, BLOCK_K):
        k = split * (K // SPLITS) + start + tl.arange(0, BLOCK_K)
        x = tl.load(streams + row + k[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        w = tl.load(projection + columns[None, :] * K + k[:, None], mask=columns[None, :] < MIXES, other=0.0)
        # x is exact in TF32; three products of it keep what w has beyond TF32
        products = tl.dot(x, w, products, input_precision="tf32x3")
        squares += tl.sum(x * x, 1)
    target = partial + (split * batch + tokens)[:, None] * COLUMNS + columns[None, :]
    tl.store(target, tl.where(columns[None, :] == MIXES, squares[:, None], products), mask=inside[:, None])


@triton.jit
def summed(partial, columns, batch, token, SPLITS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum over splits of some columns of a token's row."""
    splits = tl.arange(0, SPLITS)
    rows = tl.load(partial + (splits[:, None] * batch + token) * COLUMNS + columns[None, :])
    return tl.sum(rows, 0)


@triton.jit
def collapse_kernel(
    streams,  # [B, 4, D] bf16
    partial,  # [SPLITS, B, COLUMNS] fp32
    scale,  # [3] fp32
    base,  # [MIXES] fp32
    collapsed,  # [B, D] bf16
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    batch,
    D: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program per (token, part of D); each has the token's weights, the first one of a token stores them."""
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    eps = 1e-6
    copies = tl.arange(0, 4)
    cells = copies[:, None] * 4 + copies[None, :]
    squares = tl.load(partial + (tl.arange(0, SPLITS) * batch + token) * COLUMNS + MIXES)
    norm = tl.rsqrt(tl.sum(squares, 0) / (4 * D) + eps)

    before = summed(partial, copies, batch, token, SPLITS, COLUMNS) * norm
    before = tl.sigmoid(before * tl.load(scale) + tl.load(base + copies)) + eps
    mixed = tl.reshape(summed(partial, 8 + tl.arange(0, 16), batch, token, SPLITS, COLUMNS), [4, 4]) * norm
    mixed = mixed * tl.load(scale + 2) + tl.load(base + 8 + cells)
    mixed = tl.exp(mixed - tl.max(mixed, 1)[:, None])
    mixed = mixed / tl.sum(mixed, 1)[:, None] + eps
    mixed = mixed / (tl.sum(mixed, 0)[None, :] + eps)
    for _ in tl.static_range(ITERATIONS - 1):
        mixed = mixed / (tl.sum(mixed, 1)[:, None] + eps)
        mixed = mixed / (tl.sum(mixed, 0)[None, :] + eps)
    if part == 0:
        behind = summed(partial, 4 + copies, batch, token, SPLITS, COLUMNS) * norm
        behind = 2 * tl.sigmoid(behind * tl.load(scale + 1) + tl.load(base + 4 + copies))
        tl.store(after + token * 4 + copies, behind)
        tl.store(comb + token * 16 + cells, mixed)

    at = part * BLOCK_D + tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    for copy in tl.static_range(4):
        weight = tl.sum(tl.where(copies == copy, before, 0.0), 0)
        total += weight * tl.load(streams + (token * 4 + copy) * D + at).to(tl.float32)
    tl.store(collapsed + token * D + at, total.to(collapsed.dtype.element_ty))


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
