"""Sparse MLA decode of DeepSeek-V3.2 on tensor cores: one program per (tile of heads, split of the lists, request).

As `mma_fp8.py`, with keys wider than values: the rotary part weighs in the scores alone. The 512 e4m3 values come in
parts of PART, each within one fp32 scale. Operands are bf16; a scale that is no power of two costs them one rounding.
"""

import triton
import triton.language as tl

from .fp8_rows import from_e4m3, load_raw, opaque
from .mma import accumulate, fitting, load_query, products, store_parts, zeros_like
from .mma_fp8 import NEVER
from .tiles import finish, keep_slots, load_length, read_slots

CONFIGS = [
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32, "PART": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 32, "BLOCK_N": 32, "PART": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 64, "PART": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64, "PART": 128}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64, "PART": 128}, num_warps=8, num_stages=3),
]
"""The first two fit in 99 KiB (sm_120)."""


def shared_bytes(config: triton.Config, sm: int) -> int:
    """Upper bound of the shared memory [bytes] of one CTA of `mma_v32_kernel`, as `mma_fp8.shared_bytes`."""
    heads, entries = config.kwargs["BLOCK_H"], config.kwargs["BLOCK_N"]
    if heads >= 64 and sm // 10 in (10, 11):
        return NEVER
    wgmma = heads >= 64 and sm // 10 == 9
    tile = entries * (1152 if wgmma else 1024 + 2 * heads)
    return 1152 * heads + tile + 656 * entries * (config.num_stages - 1) + 1024


def prune(configs: list, named_args: dict, **kwargs) -> list:
    """As `mma.prune`: configurations that fit the current device's shared memory and waste no whole tile of heads."""
    return fitting(configs, {**named_args, **kwargs}["HEADS"], shared_bytes)


@triton.jit
def load_token(cache, row, valid, PART: tl.constexpr):
    """(scales, raw, rotary) of [N] tokens that start at bytes `row`: four [N] fp32, the e4m3 parts, [N, 64] bf16."""
    scales, raw = (), ()
    scale_at = (cache + 512).to(tl.pointer_type(tl.float32)) + (row >> 2)
    for i in tl.static_range(4):
        scales = scales + (tl.load(scale_at + i, mask=valid, other=0.0),)
    for i in tl.static_range(512 // PART):
        raw = raw + (load_raw(cache, row, valid, PART * i, PART),)
    rotary_at = (cache + 528).to(tl.pointer_type(tl.bfloat16)) + (row >> 1)
    return scales, raw, tl.load(rotary_at[:, None] + tl.arange(0, 64)[None, :], mask=valid[:, None], other=0.0)


@triton.jit
def dequantise_parts(raw, scales, PART: tl.constexpr, E4M3: tl.constexpr, OPAQUE: tl.constexpr, kind: tl.constexpr):
    """The values of what `load_token` gives, as `kind`. OPAQUE: see `fp8_rows.opaque`."""
    parts = ()
    for i in tl.static_range(512 // PART):
        part = raw[i]
        if OPAQUE:
            part = opaque(part)
        value = from_e4m3(part, E4M3) * scales[PART * i // 128][:, None]
        parts = parts + (value.to(kind),)
    return parts


@triton.autotune(
    configs=CONFIGS,
    key=["batch_bucket", "HEADS", "window_width", "extra_width"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit(do_not_specialize=["batch_bucket"])
def mma_v32_kernel(
    q,  # [B, H, 576] bf16
    window_cache,  # [slots, 656] uint8
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
    D: tl.constexpr,  # 576
    FINAL: tl.constexpr,
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
    queries = load_query(q_row, head_ok, 0, 512, PART, DOT_FP32)
    top = tl.full([BLOCK_H], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = zeros_like(queries)
    queries = queries + load_query(q_row, head_ok, 512, D, 64, DOT_FP32)
    CHAINS: tl.constexpr = 4 if BLOCK_H < 64 else 1  # wgmma is waited for one by one in any case

    slots = keep_slots(slots, split, window_tiles, window_length, extra_length, BLOCK_N)
    for tile in tl.range(split, end, splits):
        valid = slots >= 0
        cache = tl.where(tile < window_tiles, window_cache, extra_cache)
        scales, raw, rotary = load_token(cache, tl.maximum(slots, 0).to(tl.int64) * 656, valid, PART)
        after = tile + splits
        slots = read_slots(after, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N)
        slots = keep_slots(slots, after, window_tiles, window_length, extra_length, BLOCK_N)
        rows = dequantise_parts(raw, scales, PART, E4M3, BLOCK_H < 64 and ASM, queries[0].dtype)
        scores = products(queries, rows + (rotary.to(queries[0].dtype),), CHAINS) * scale_log2
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 1)
        acc = accumulate(acc, rescale, weights.to(queries[0].dtype), rows)
        top = new_top

    sink_log2 = tl.load(sink + heads, mask=head_ok, other=0.0) * log2e
    factor, row_lse = finish(top, total, sink_log2, FINAL)
    row = (request * splits + split) * HEADS + heads
    store_parts(out + row * 512, acc, factor, head_ok)
    tl.store(lse + row, row_lse, mask=head_ok)
