"""Sparse MLA decode on tensor cores from the fp8 cache: one program per (tile of heads, split of the lists, request).

As `mma.py`, but a tile of rows comes as bytes: the raw rows (576 B a token, pipelined copies) are turned into bf16 on
their way to the matrix units. A row falls into parts of PART e4m3 values (448 of them in all: seven parts of 64, or
three of 128 and one of 64) and the rotary part, 64 values in bf16. Parts of one width share the layout of their
addresses, indices and scales: with 64 a program computes these once. Operands are bf16, which holds every value that
the format can, whatever the scales; fp16 would overflow at 2 ** 16.
"""

import triton
import triton.language as tl

from .fp8_rows import dequantise, load_raw, load_rope, load_scales, locate, opaque
from .mma import accumulate, fitting, load_query, products, store_parts, zeros_like
from .tiles import finish, keep_slots, load_length, read_slots

CONFIGS = [
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32, "PART": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32, "PART": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 64, "PART": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 32, "BLOCK_N": 32, "PART": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64, "PART": 128}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64, "PART": 128}, num_warps=8, num_stages=3),
]
"""BLOCK_H 16 is the smallest tile tl.dot takes: 8 heads use half of one. The first two and the fourth fit in 99 KiB."""


NEVER = 2**31
"""More bytes than any GPU has for a CTA."""


def shared_bytes(config: triton.Config, sm: int) -> int:
    """Upper bound of the shared memory [bytes] of one CTA of `mma_fp8_kernel`, within 1 KiB of what Triton takes.

    The q tile, one tile in bf16, and the raw tiles in flight (rows, and scales for each width of parts). With mma.sync
    the weights of the second matmul pass through shared memory; with wgmma (sm_90) the rotary part lies there once
    more. With tcgen05 (sm_10x, 64 heads) NEVER: five accumulators of 64 rows take all 512 columns of tensor memory.
    """
    heads, entries = config.kwargs["BLOCK_H"], config.kwargs["BLOCK_N"]
    if heads >= 64 and sm // 10 in (10, 11):
        return NEVER
    wgmma = heads >= 64 and sm // 10 == 9
    tile = entries * (1024 if wgmma else 896 + 2 * heads)
    raw = entries * (576 + 8 * (1 if config.kwargs["PART"] == 64 else 2))
    return 1024 * heads + tile + raw * (config.num_stages - 1) + 512


def prune(configs: list, named_args: dict, **kwargs) -> list:
    """As `mma.prune`: configurations that fit the current device's shared memory and waste no whole tile of heads."""
    return fitting(configs, {**named_args, **kwargs}["HEADS"], shared_bytes)


@triton.jit
def load_parts(cache, row, valid, PART: tl.constexpr):
    """The e4m3 parts of [N] rows, as bytes."""
    parts = ()
    for i in tl.static_range(448 // PART):
        parts = parts + (load_raw(cache, row, valid, i * PART, PART),)
    for i in tl.static_range(448 // PART * PART // 64, 7):
        parts = parts + (load_raw(cache, row, valid, i * 64, 64),)
    return parts


@triton.jit
def dequantise_parts(raw, scales, PART: tl.constexpr, E4M3: tl.constexpr, FP32: tl.constexpr, OPAQUE: tl.constexpr):
    """The values of what `load_parts` gives. OPAQUE: see `fp8_rows.opaque`."""
    parts = ()
    for i in tl.static_range(len(raw)):
        part = raw[i]
        if OPAQUE:
            part = opaque(part)
        if i < 448 // PART:
            parts = parts + (dequantise(part, scales, i * (PART // 64), PART // 64, E4M3, FP32),)
        else:
            parts = parts + (dequantise(part, scales, 6, 1, E4M3, FP32),)
    return parts


@triton.autotune(
    configs=CONFIGS,
    key=["batch_bucket", "HEADS", "window_width", "extra_width"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit(do_not_specialize=["batch_bucket"])
def mma_fp8_kernel(
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
    DOT_FP32: tl.constexpr,  # operands of tl.dot in fp32, for Triton's interpreter only
    PDL: tl.constexpr,  # sm_90 and later: lets the combine be launched early
    ASM: tl.constexpr,  # inline PTX may be used (see launch.run)
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PART: tl.constexpr,
):
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    request = tl.program_id(2).to(tl.int64)
    heads = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)
    head_ok = heads < HEADS
    log2e = 1.4426950408889634
    # A Python float is fp32 to Triton and fp64 to Inductor, and fp64 accumulators do not compile.
    scale_log2 = (scale * log2e).to(tl.float32)

    if PDL and not FINAL:
        tl.extra.cuda.gdc_launch_dependents()  # the combine may be set up meanwhile; it waits for this kernel's end

    window_list = window_indices + request * window_width
    extra_list = extra_indices + request * extra_width
    window_tiles = tl.cdiv(window_width, BLOCK_N)
    slots = read_slots(split, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N)
    window_length = load_length(window_lengths, request, window_width)
    extra_length = load_length(extra_lengths, request, extra_width)
    end = window_tiles + tl.cdiv(extra_length, BLOCK_N)

    q_row = q + (request * HEADS + heads) * D
    queries = load_query(q_row, head_ok, 0, 448 // PART * PART, PART, DOT_FP32)
    queries = queries + load_query(q_row, head_ok, 448 // PART * PART, D, 64, DOT_FP32)
    top = tl.full([BLOCK_H], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = zeros_like(queries)
    CHAINS: tl.constexpr = 4 if BLOCK_H < 64 else 1  # wgmma is waited for one by one in any case

    # The indices of the next tile travel as a loop variable: loaded inside the loop, they would take a stage of the
    # pipeline from the rows they point at.
    slots = keep_slots(slots, split, window_tiles, window_length, extra_length, BLOCK_N)
    for tile in tl.range(split, end, splits):
        valid = slots >= 0
        in_window = tile < window_tiles
        cache = tl.where(in_window, window_cache, extra_cache)
        row, scale_at = locate(slots, in_window, WINDOW_PAGE, EXTRA_PAGE)
        scales = load_scales(cache, scale_at, valid)
        raw = load_parts(cache, row, valid, PART)
        rotary = load_rope(cache, row, valid)
        after = tile + splits
        slots = read_slots(after, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N)
        slots = keep_slots(slots, after, window_tiles, window_length, extra_length, BLOCK_N)
        rows = dequantise_parts(raw, scales, PART, E4M3, DOT_FP32, BLOCK_H < 64 and ASM)
        rows = rows + (rotary.to(rows[0].dtype),)
        scores = products(queries, rows, CHAINS) * scale_log2
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 1)
        acc = accumulate(acc, rescale, weights.to(rows[0].dtype), rows)
        top = new_top

    sink_log2 = tl.load(sink + heads, mask=head_ok, other=0.0) * log2e
    factor, row_lse = finish(top, total, sink_log2, FINAL)
    row = (request * splits + split) * HEADS + heads
    store_parts(out + row * D, acc, factor, head_ok)
    tl.store(lse + row, row_lse, mask=head_ok)
