"""Merges the splits of one request and a group of heads, and applies the attention sink.

Up to 16 splits are a loop that is unrolled: every thread merges its own columns, all loads are under way at once and
nothing is exchanged between threads; few programs, since thousands of small ones cost more to start than to run. More
splits, which small batches have, are a tile that one warp reduces. Measured on one H200 (whole calls by mma, fp8, 64
heads): 32 requests x 4 splits 46.7 us with 8192 programs of 128 threads, 26.6 with 2048; 1 request x 20 splits 8.0 us
unrolled, 6.7 as a tile. Parts are fp32, or fp16 in units (see gluon_units.py), which are half as many bytes.
"""

import triton
import triton.language as tl

UNROLLED = 16
"""Most splits that are unrolled."""

UNIT = tl.constexpr(64)
"""Columns of a row that share a unit, if it is in fp16: those of a scale of the cache."""


@triton.jit(do_not_specialize=["splits"])
def combine_kernel(
    partial_out,  # [B, splits, H, D], each split normalised on its own: fp32, or fp16 in units of `units`
    units,  # [B, splits, H, D / UNIT] fp32, of rows in fp16; not read for fp32
    partial_lse,  # [B, splits, H] fp32, natural log, -inf where a split was empty
    sink,
    out,
    lse,
    splits,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (GROUP heads, request, CHUNK columns). BLOCK_S is a power of two >= splits; GROUP 1: a tile.

    PDL: launched while the main kernel runs (programmatic dependent launch, sm_90 and later), whose results it waits
    for; without the launch attribute there is nothing to wait for.
    """
    heads = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    head_ok = heads < HEADS
    request = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    own_sink = tl.load(sink + heads, mask=head_ok, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()

    row = request * splits * HEADS + heads
    if GROUP == 1:
        total, base, merged = merge_tile(partial_out, units, partial_lse, row, columns, splits, HEADS, D, BLOCK_S)
    else:
        total, base, merged = merge_unrolled(
            partial_out, units, partial_lse, row, columns, heads, splits, HEADS, D, BLOCK_S
        )
    denominator = total + tl.exp(own_sink - base)
    merged *= tl.where(denominator == 0.0, 0.0, 1.0 / denominator)[:, None]

    at = request * HEADS + heads
    tl.store(out + at[:, None] * D + columns[None, :], merged.to(out.dtype.element_ty), mask=head_ok[:, None])
    tl.store(lse + at, tl.where(total == 0.0, -float("inf"), base + tl.log(total)), mask=head_ok)


@triton.jit
def in_fp32(values, units, rows, there, D: tl.constexpr):
    """This program's columns [n, CHUNK] of `rows` in fp32, of fp16 in `units`."""
    N: tl.constexpr = values.shape[1] // UNIT
    at = units + rows[:, None] * (D // UNIT) + (tl.program_id(2) * N + tl.arange(0, N))[None, :]
    unit = tl.load(at, mask=there[:, None], other=0.0)
    parts = tl.reshape(values.to(tl.float32), [values.shape[0], N, UNIT]) * unit[:, :, None]
    return tl.reshape(parts, values.shape)


@triton.jit
def merge_unrolled(
    partial_out,
    units,
    partial_lse,
    row,
    columns,
    heads,
    splits,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """(sum of exp(lse - base) [GROUP], base [GROUP], sum of those times the rows [GROUP, CHUNK])."""
    parts, values = (), ()
    for split in tl.static_range(BLOCK_S):
        there = heads < tl.where(split < splits, HEADS, 0)
        parts = parts + (tl.load(partial_lse + row, mask=there, other=-float("inf")),)
        at = partial_out + row[:, None] * D + columns[None, :]
        value = tl.load(at, mask=there[:, None], other=0.0)
        if partial_out.dtype.element_ty == tl.float16:
            value = in_fp32(value, units, row, there, D)
        values = values + (value,)
        row += HEADS
    top = parts[0]
    for split in tl.static_range(1, BLOCK_S):
        top = tl.maximum(top, parts[split])
    base = tl.where(top == -float("inf"), 0.0, top)
    total = tl.exp(parts[0] - base)
    merged = values[0] * total[:, None]
    for split in tl.static_range(1, BLOCK_S):
        weight = tl.exp(parts[split] - base)
        total += weight
        merged += values[split] * weight[:, None]
    return total, base, merged


@triton.jit
def merge_tile(
    partial_out, units, partial_lse, row, columns, splits, HEADS: tl.constexpr, D: tl.constexpr, BLOCK_S: tl.constexpr
):
    """As `merge_unrolled`, for one head: GROUP is 1."""
    split = tl.arange(0, BLOCK_S)
    rows = tl.sum(row, 0) + split * HEADS
    parts = tl.load(partial_lse + rows, mask=split < splits, other=-float("inf"))
    at = partial_out + rows[:, None] * D + columns[None, :]
    values = tl.load(at, mask=(split < splits)[:, None], other=0.0)
    if partial_out.dtype.element_ty == tl.float16:
        values = in_fp32(values, units, rows, split < splits, D)
    top = tl.max(parts, 0)
    base = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp(parts - base)
    merged = tl.sum(values * weights[:, None], 0)
    return tl.full([1], 0.0, tl.float32) + tl.sum(weights, 0), tl.full([1], 0.0, tl.float32) + base, merged[None, :]
