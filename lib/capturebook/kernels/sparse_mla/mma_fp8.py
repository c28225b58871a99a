"""Sparse MLA decode on tensor cores from the fp8 cache: one program per (tile of heads, split of the lists, request).

As `mma.py`, but a tile of rows comes as bytes: the raw rows (576 B a token, pipelined copies) are turned into bf16 on
their way to the matrix units. A row falls into four parts, since Triton's tiles are powers of two: e4m3 values
[0, 256), [256, 384), [384, 448), and the rotary part in bf16, [448, 512). Operands are bf16, which holds every value
that the format can, whatever the scales; fp16 would overflow at 2 ** 16.
"""

import triton
import triton.language as tl

from .fp8_rows import dequantise, load_raw, load_rope, load_scales, locate, opaque
from .mma import fitting
from .tiles import finish, keep_slots, load_length, read_slots

CONFIGS = [
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 32, "BLOCK_N": 32}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 32}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64}, num_warps=8, num_stages=2),
]
"""BLOCK_H 16 is the smallest tile tl.dot takes: 8 heads use half of one. The first two fit in 99 KiB (sm_120)."""


def shared_bytes(config: triton.Config, sm: int) -> int:
    """Upper bound of the shared memory [bytes] of one CTA of `mma_fp8_kernel`, within 1 KiB of what Triton takes.

    The q tile, one tile in bf16, and the raw tiles in flight (rows, scales three times: for each part's layout). With
    mma.sync the weights of the second matmul pass through shared memory; with wgmma (sm_90) the rotary part lies there
    once more.
    """
    heads, entries = config.kwargs["BLOCK_H"], config.kwargs["BLOCK_N"]
    wgmma = heads >= 64 and sm // 10 == 9
    tile = entries * (1024 if wgmma else 896 + 2 * heads)
    return 1024 * heads + tile + entries * 600 * (config.num_stages - 1) + 512


def prune(configs: list, named_args: dict, **kwargs) -> list:
    """As `mma.prune`: configurations that fit the current device's shared memory and waste no whole tile of heads."""
    return fitting(configs, {**named_args, **kwargs}["HEADS"], shared_bytes)


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
    DOT_FP32: tl.constexpr,  # operands of tl.dot in fp32 and no inline PTX, for Triton's interpreter only
    PDL: tl.constexpr,  # sm_90 and later: lets the combine be launched early
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
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

    q_row = q + (request * HEADS + heads)[:, None] * D
    c256, c128, c64 = tl.arange(0, 256)[None, :], tl.arange(0, 128)[None, :], tl.arange(0, 64)[None, :]
    q0 = tl.load(q_row + c256, mask=head_ok[:, None], other=0.0)
    q1 = tl.load(q_row + 256 + c128, mask=head_ok[:, None], other=0.0)
    q2 = tl.load(q_row + 384 + c64, mask=head_ok[:, None], other=0.0)
    q3 = tl.load(q_row + 448 + c64, mask=head_ok[:, None], other=0.0)
    if DOT_FP32:
        q0, q1, q2, q3 = q0.to(tl.float32), q1.to(tl.float32), q2.to(tl.float32), q3.to(tl.float32)
    top = tl.full([BLOCK_H], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc0 = tl.zeros([BLOCK_H, 256], dtype=tl.float32)
    acc1 = tl.zeros([BLOCK_H, 128], dtype=tl.float32)
    acc2 = tl.zeros([BLOCK_H, 64], dtype=tl.float32)
    acc3 = tl.zeros([BLOCK_H, 64], dtype=tl.float32)

    # The indices of the next tile travel as a loop variable: loaded inside the loop, they would take a stage of the
    # pipeline from the rows they point at.
    slots = keep_slots(slots, split, window_tiles, window_length, extra_length, BLOCK_N)
    for tile in tl.range(split, end, splits):
        valid = slots >= 0
        in_window = tile < window_tiles
        cache = tl.where(in_window, window_cache, extra_cache)
        row, scale_at = locate(slots, in_window, WINDOW_PAGE, EXTRA_PAGE)
        scales = load_scales(cache, scale_at, valid)
        raw0 = load_raw(cache, row, valid, 0, 256)
        raw1 = load_raw(cache, row, valid, 256, 128)
        raw2 = load_raw(cache, row, valid, 384, 64)
        rows3 = load_rope(cache, row, valid)
        after = tile + splits
        slots = read_slots(after, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N)
        slots = keep_slots(slots, after, window_tiles, window_length, extra_length, BLOCK_N)
        if BLOCK_H < 64 and not DOT_FP32:
            raw0, raw1, raw2 = opaque(raw0), opaque(raw1), opaque(raw2)
        rows0 = dequantise(raw0, scales, 0, 4, E4M3, DOT_FP32)
        rows1 = dequantise(raw1, scales, 4, 2, E4M3, DOT_FP32)
        rows2 = dequantise(raw2, scales, 6, 1, E4M3, DOT_FP32)
        if DOT_FP32:
            rows3 = rows3.to(tl.float32)
        scores = tl.dot(q0, rows0.T, input_precision="ieee")
        scores = tl.dot(q1, rows1.T, scores, input_precision="ieee")
        scores = tl.dot(q2, rows2.T, scores, input_precision="ieee")
        scores = tl.dot(q3, rows3.T, scores, input_precision="ieee") * scale_log2
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 1)
        weights = weights.to(rows0.dtype)
        acc0 = tl.dot(weights, rows0, acc0 * rescale[:, None], input_precision="ieee")
        acc1 = tl.dot(weights, rows1, acc1 * rescale[:, None], input_precision="ieee")
        acc2 = tl.dot(weights, rows2, acc2 * rescale[:, None], input_precision="ieee")
        acc3 = tl.dot(weights, rows3, acc3 * rescale[:, None], input_precision="ieee")
        top = new_top

    sink_log2 = tl.load(sink + heads, mask=head_ok, other=0.0) * log2e
    factor, row_lse = finish(top, total, sink_log2, FINAL)
    row = (request * splits + split) * HEADS + heads
    factor = factor[:, None]
    out_row = out + row[:, None] * D
    kind = out.dtype.element_ty
    tl.store(out_row + c256, (acc0 * factor).to(kind), mask=head_ok[:, None])
    tl.store(out_row + 256 + c128, (acc1 * factor).to(kind), mask=head_ok[:, None])
    tl.store(out_row + 384 + c64, (acc2 * factor).to(kind), mask=head_ok[:, None])
    tl.store(out_row + 448 + c64, (acc3 * factor).to(kind), mask=head_ok[:, None])
    tl.store(lse + row, row_lse, mask=head_ok)
