"""mHC before a sublayer and the sublayer's norm in one kernel: weights, collapsed stream, RMSNorm, fp8 values."""

import triton
import triton.language as tl

from .tiles import quantise_groups, wait_for_previous


@triton.jit
def collapse_norm_kernel(
    streams,  # [B, 4, D] bf16
    partial,  # [SPLITS, B, COLUMNS] fp32, as `expand_project_kernel` and `project_kernel` leave it
    scale,  # [3] fp32
    base,  # [MIXES] fp32
    norm,  # [D] fp32
    normed,  # [B, D] bf16
    values,  # [B, D] e4m3 bytes
    scales,  # [D / 128, B] fp32
    after,  # [B, 4] fp32
    comb,  # [B, 4, 4] fp32
    batch,
    D: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two >= D
    BLOCK_B: tl.constexpr,
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per token, and in front of them one per BLOCK_B tokens for the weights that come after the sublayer.

    The Sinkhorn iterations, one behind the other, take as long as the rest: nothing waits for them in this kernel.
    """
    wait_for_previous(PDL)
    ahead = tl.cdiv(batch, BLOCK_B)
    if tl.program_id(0) < ahead:
        weights_after(
            partial, scale, base, after, comb, tl.program_id(0), batch, D, MIXES, COLUMNS, SPLITS, ITERATIONS, BLOCK_B
        )
    else:
        token = (tl.program_id(0) - ahead).to(tl.int64)
        at = tl.arange(0, BLOCK_D)
        copies = tl.arange(0, 4)
        splits = tl.arange(0, SPLITS)
        gain = tl.load(norm + at, mask=at < D, other=0.0)
        line = streams + (token * 4 + copies)[:, None] * D + at[None, :]
        x = tl.load(line, mask=at[None, :] < D, other=0.0)
        rows = partial + (splits * batch + token) * COLUMNS
        root = tl.rsqrt(tl.sum(tl.load(rows + MIXES), 0) / (4 * D) + 1e-6)
        before = tl.sum(tl.load(rows[:, None] + copies[None, :]), 0) * root
        before = tl.sigmoid(before * tl.load(scale) + tl.load(base + copies)) + 1e-6
        row = tl.sum(before[:, None] * x.to(tl.float32), 0)
        row *= tl.rsqrt(tl.sum(row * row, 0) / D + 1e-6) * gain
        tl.store(normed + token * D + at, row.to(normed.dtype.element_ty), mask=at < D)
        fp8, powers = quantise_groups(tl.reshape(row, [BLOCK_D // 128, 128]), E4M3)
        tl.store(values + token * D + at, tl.reshape(fp8, [BLOCK_D]), mask=at < D)
        group = tl.arange(0, BLOCK_D // 128)
        tl.store(scales + group * batch + token, powers, mask=group < D // 128)


@triton.jit
def weights_after(
    partial,
    scale,
    base,
    after,
    comb,
    tile,
    batch,
    D: tl.constexpr,
    MIXES: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK_B: tl.constexpr,
):
    """`after` and `comb` of BLOCK_B tokens."""
    tokens = tile * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = tokens < batch
    copies = tl.arange(0, 4)
    cells = copies[:, None] * 4 + copies[None, :]
    splits = tl.arange(0, SPLITS)
    rows = partial + (splits[:, None] * batch + tokens[None, :]) * COLUMNS
    squares = tl.sum(tl.load(rows + MIXES, mask=inside[None, :], other=0.0), 0)
    root = tl.rsqrt(squares / (4 * D) + 1e-6)

    cell = tl.arange(0, 16)
    mixed = tl.load(rows[:, :, None] + 8 + cell[None, None, :], mask=inside[None, :, None], other=0.0)
    mixed = tl.reshape(tl.sum(mixed, 0) * root[:, None], [BLOCK_B, 4, 4])
    mixed = mixed * tl.load(scale + 2) + tl.load(base + 8 + cells)[None, :, :]
    mixed = tl.exp(mixed - tl.max(mixed, 2)[:, :, None])
    mixed = mixed / tl.sum(mixed, 2)[:, :, None] + 1e-6
    mixed = mixed / (tl.sum(mixed, 1)[:, None, :] + 1e-6)
    for _ in tl.range(ITERATIONS - 1):
        mixed = mixed / (tl.sum(mixed, 2)[:, :, None] + 1e-6)
        mixed = mixed / (tl.sum(mixed, 1)[:, None, :] + 1e-6)
    target = comb + tokens[:, None, None] * 16 + cells[None, :, :]
    tl.store(target, mixed, mask=inside[:, None, None])

    behind = tl.load(rows[:, :, None] + 4 + copies[None, None, :], mask=inside[None, :, None], other=0.0)
    behind = tl.sum(behind, 0) * root[:, None] * tl.load(scale + 1) + tl.load(base + 4 + copies)[None, :]
    tl.store(after + tokens[:, None] * 4 + copies[None, :], 2 * tl.sigmoid(behind), mask=inside[:, None])
