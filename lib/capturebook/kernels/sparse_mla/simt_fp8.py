"""Sparse MLA decode without tensor cores from the fp8 cache: one program per (head, split of the lists, request).

As `simt.py`: every head reads and dequantises the same rows again.
"""

import triton
import triton.language as tl

from .fp8_rows import dequantise, load_scales, locate
from .simt import CONFIGS
from .tiles import finish, load_indices, load_length, split_range


@triton.jit
def load_rows(cache, row, scales, valid, E4M3: tl.constexpr):
    """[N, 512] fp32 rows, 0 where not valid."""
    column = tl.arange(0, 512)[None, :]
    raw = tl.load(cache + row[:, None] + column, mask=valid[:, None] & (column < 448), other=0)
    start = (cache + 448).to(tl.pointer_type(tl.bfloat16))
    rope_at = start + (row >> 1)[:, None] + (column - 448)
    rope = tl.load(rope_at, mask=valid[:, None] & (column >= 448), other=0.0)
    values = dequantise(raw, scales, 0, 8, E4M3, FP32=True)
    return tl.where(column < 448, values, rope.to(tl.float32))


@triton.autotune(configs=CONFIGS, key=["batch_bucket", "HEADS", "window_width", "extra_width"])
@triton.jit(do_not_specialize=["batch_bucket"])
def simt_fp8_kernel(
    q,
    window_cache,
    window_indices,
    window_lengths,
    extra_cache,
    extra_indices,
    extra_lengths,
    sink,
    out,
    lse,
    scale,
    window_width,
    extra_width,
    batch_bucket,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    FINAL: tl.constexpr,
    WINDOW_PAGE: tl.constexpr,
    EXTRA_PAGE: tl.constexpr,
    E4M3: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    head = tl.program_id(0)
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    request = tl.program_id(2).to(tl.int64)
    columns = tl.arange(0, D)
    log2e = 1.4426950408889634
    # A Python float is fp32 to Triton and fp64 to Inductor, and fp64 accumulators do not compile.
    scale_log2 = (scale * log2e).to(tl.float32)

    window_length = load_length(window_lengths, request, window_width)
    extra_length = load_length(extra_lengths, request, extra_width)
    window_list = window_indices + request * window_width
    extra_list = extra_indices + request * extra_width
    first, end, window_tiles = split_range(window_length, extra_length, split, splits, BLOCK_N)

    q_row = tl.load(q + (request * HEADS + head) * D + columns).to(tl.float32) * scale_log2
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([D], dtype=tl.float32)

    slots = load_indices(first, window_tiles, window_list, window_length, extra_list, extra_length, BLOCK_N)
    for tile in tl.range(first, end):
        valid = slots >= 0
        in_window = tile < window_tiles
        cache = tl.where(in_window, window_cache, extra_cache)
        row, scale_at = locate(slots, in_window, WINDOW_PAGE, EXTRA_PAGE)
        rows = load_rows(cache, row, load_scales(cache, scale_at, valid), valid, E4M3)
        slots = load_indices(tile + 1, window_tiles, window_list, window_length, extra_list, extra_length, BLOCK_N)
        scores = tl.where(valid, tl.sum(q_row[None, :] * rows, 1), -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 0))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - base)
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 0)
        acc = acc * rescale + tl.sum(weights[:, None] * rows, 0)
        top = new_top

    factor, row_lse = finish(top, total, tl.load(sink + head) * log2e, FINAL)
    row = (request * splits + split) * HEADS + head
    tl.store(out + row * D + columns, (acc * factor).to(out.dtype.element_ty))
    tl.store(lse + row, row_lse)
