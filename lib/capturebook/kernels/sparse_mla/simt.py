"""Sparse MLA decode without tensor cores: one program per (head, split of the index lists, request).

The kernel a server falls back to on hardware that its tensor-core kernel does not cover: multiply, reduce, no tl.dot.
Every head reads the same rows again, so its time grows with the number of heads.
"""

import triton
import triton.language as tl

from .tiles import finish, load_indices, load_length, split_range

CONFIGS = [
    triton.Config({"BLOCK_N": 8}, num_warps=4, num_stages=1),
    triton.Config({"BLOCK_N": 16}, num_warps=4, num_stages=1),
    triton.Config({"BLOCK_N": 32}, num_warps=8, num_stages=1),
]


@triton.autotune(configs=CONFIGS, key=["batch_bucket", "HEADS", "window_width", "extra_width"])
@triton.jit(do_not_specialize=["batch_bucket"])
def simt_kernel(
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
        cache = tl.where(tile < window_tiles, window_cache, extra_cache)
        rows = tl.load(cache + slots.to(tl.int64)[:, None] * D + columns[None, :], mask=valid[:, None], other=0.0)
        rows = rows.to(tl.float32)
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
