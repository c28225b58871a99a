"""mHC before a sublayer and, in the same kernel, the sublayer's norm: weights, collapsed stream, RMSNorm, fp8."""

import triton
import triton.language as tl

from .tiles import quantise_groups


@triton.jit(do_not_specialize=["batch"])
def collapse_kernel(
    streams,  # [B, 4, D] bf16
    partial,  # [SPLITS, B, COLUMNS] fp32, as `project_kernel` leaves it
    scale,  # [3] fp32
    base,  # [MIXES] fp32
    norm,  # [D] fp32
    collapsed,  # [B, D] bf16; NORM: normed
    values,  # [B, D] e4m3 bytes
    scales,  # [D / 128, B] fp32
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    batch,
    D: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two >= D
    NORM: tl.constexpr,  # else norm, values and scales are not looked at
    E4M3: tl.constexpr,
):
    """Two programs per token: one for the weights that come after the sublayer, one for the sublayer's input.

    The Sinkhorn iterations, one behind the other, take longer than the rest: nothing waits for them in this kernel, and
    they start first. All that is read is asked for before the first reduction, which no read could pass.
    """
    place = tl.arange(0, COLUMNS)
    if tl.program_id(0) < batch:
        token = tl.program_id(0).to(tl.int64)
        behind = (place >= 4) & (place < 8)
        factor, offset = tl.load(scale + 1), tl.load(base + place, mask=behind, other=0.0)
        matrix_factor, matrix_offset = tl.load(scale + 2), tl.load(base + place - 8, mask=place >= 16, other=0.0)
        mixes = load_mixes(partial, token, place, batch, D, COLUMNS, SPLITS)
        tl.store(after + token * 4 + place - 4, 2 * tl.sigmoid(mixes * factor + offset), mask=behind)
        store_matrix(mixes * matrix_factor + matrix_offset, comb + token * 16, ITERATIONS)
    else:
        token = (tl.program_id(0) - batch).to(tl.int64)
        at = tl.arange(0, BLOCK_D)
        line = streams + token * 4 * D + at
        x0 = tl.load(line, mask=at < D, other=0.0).to(tl.float32)
        x1 = tl.load(line + D, mask=at < D, other=0.0).to(tl.float32)
        x2 = tl.load(line + 2 * D, mask=at < D, other=0.0).to(tl.float32)
        x3 = tl.load(line + 3 * D, mask=at < D, other=0.0).to(tl.float32)
        gain = tl.load(norm + at, mask=at < D, other=0.0) if NORM else 0.0
        factor, offset = tl.load(scale), tl.load(base + place, mask=place < 4, other=0.0)
        mixes = load_mixes(partial, token, place, batch, D, COLUMNS, SPLITS)
        before = tl.sigmoid(mixes * factor + offset) + 1e-6
        row = pick(before, place, 0) * x0 + pick(before, place, 1) * x1
        row += pick(before, place, 2) * x2 + pick(before, place, 3) * x3
        if NORM:
            row *= tl.rsqrt(tl.sum(row * row, 0) / D + 1e-6) * gain
        tl.store(collapsed + token * D + at, row.to(collapsed.dtype.element_ty), mask=at < D)
        if NORM:
            fp8, powers = quantise_groups(tl.reshape(row, [BLOCK_D // 128, 128]), E4M3)
            tl.store(values + token * D + at, tl.reshape(fp8, [BLOCK_D]), mask=at < D)
            group = tl.arange(0, BLOCK_D // 128)
            tl.store(scales + group * batch + token, powers, mask=group < D // 128)


@triton.jit
def load_mixes(partial, token, place, batch, D: tl.constexpr, COLUMNS: tl.constexpr, SPLITS: tl.constexpr):
    """[COLUMNS]: a token's projection over its root mean square, in the order of `tiles.place_of`."""
    rows = partial + (tl.arange(0, SPLITS)[:, None] * batch + token) * COLUMNS + place[None, :]
    mixes = tl.sum(tl.load(rows), 0)
    return mixes * tl.rsqrt(pick(mixes, place, 8) / (4 * D) + 1e-6)


@triton.jit
def pick(vector, place, number: tl.constexpr):
    """One value of a vector."""
    return tl.sum(tl.where(place == number, vector, 0.0), 0)


@triton.jit
def store_matrix(cells, comb, ITERATIONS: tl.constexpr):
    """Writes one token's matrix, made of the last 16 of `cells`; a thread has a row of it, to be summed alone."""
    halves = tl.reshape(cells, [2, 4, 4])
    matrix = tl.sum(tl.where(tl.arange(0, 2)[:, None, None] == 1, halves, 0.0), 0)
    column = tl.arange(0, 4)[None, :]
    c0 = tl.sum(tl.where(column == 0, matrix, 0.0), 1)
    c1 = tl.sum(tl.where(column == 1, matrix, 0.0), 1)
    c2 = tl.sum(tl.where(column == 2, matrix, 0.0), 1)
    c3 = tl.sum(tl.where(column == 3, matrix, 0.0), 1)
    top = tl.maximum(tl.maximum(c0, c1), tl.maximum(c2, c3))
    c0, c1, c2, c3 = tl.exp(c0 - top), tl.exp(c1 - top), tl.exp(c2 - top), tl.exp(c3 - top)
    total = (c0 + c1) + (c2 + c3)
    c0, c1, c2, c3 = c0 / total + 1e-6, c1 / total + 1e-6, c2 / total + 1e-6, c3 / total + 1e-6
    c0, c1, c2, c3 = by_columns(c0, c1, c2, c3)
    for _ in tl.range(ITERATIONS - 1):
        inverse = 1.0 / ((c0 + c1) + (c2 + c3) + 1e-6)
        c0, c1, c2, c3 = by_columns(c0 * inverse, c1 * inverse, c2 * inverse, c3 * inverse)
    line = comb + tl.arange(0, 4) * 4
    tl.store(line, c0)
    tl.store(line + 1, c1)
    tl.store(line + 2, c2)
    tl.store(line + 3, c3)


@triton.jit
def by_columns(c0, c1, c2, c3):
    """Columns of a matrix, each over its sum."""
    s0, s1, s2, s3 = tl.sum(c0, 0), tl.sum(c1, 0), tl.sum(c2, 0), tl.sum(c3, 0)
    return c0 / (s0 + 1e-6), c1 / (s1 + 1e-6), c2 / (s2 + 1e-6), c3 / (s3 + 1e-6)
