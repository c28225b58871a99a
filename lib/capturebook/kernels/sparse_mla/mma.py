"""Sparse MLA decode on tensor cores: one program per (tile of heads, split of the index lists, request).

A tile of rows is loaded in parts of PART columns: a thread then copies the same columns of few rows, so that it keeps
few addresses; with all 512 columns at once it would have one for every second copy.
"""

import triton
import triton.language as tl

from .tiles import finish, keep_slots, load_length, read_slots

CONFIGS = [
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 32, "PART": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 16, "BLOCK_N": 64, "PART": 64}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_H": 32, "BLOCK_N": 32, "PART": 64}, num_warps=8, num_stages=2),
    triton.Config({"BLOCK_H": 64, "BLOCK_N": 64, "PART": 512}, num_warps=8, num_stages=2),
]
"""BLOCK_H 16 is the smallest tile tl.dot takes: 8 heads use half of one. The first three fit in 99 KiB (sm_120).

Few, since a live autotune compiles each one in every process that is cold: 2 to 4 s a configuration."""


def shared_bytes(config: triton.Config, sm: int, d: int = 512) -> int:
    """Upper bound of the shared memory [bytes] of one CTA of `mma_kernel`, within 1 KiB of what Triton 3.6 to 3.9 take.

    The q tile and the row tiles in flight: num_stages - 1 with mma.sync (sm_8x and sm_12x, and fewer than 64 heads
    anywhere), where the weights of the second matmul pass through shared memory too; num_stages with wgmma (sm_90);
    one more with tcgen05 (sm_10x).
    """
    heads, entries = config.kwargs["BLOCK_H"], config.kwargs["BLOCK_N"]
    wide = {9: 0, 10: 1, 11: 1}.get(sm // 10) if heads >= 64 else None
    if wide is None:
        tiles, weights = config.num_stages - 1, 2 * heads * entries
    else:
        tiles, weights = config.num_stages + wide, 0
    return 2 * d * (heads + entries * tiles) + weights + 1024


def fitting(configs: list, heads: int, shared) -> list:
    """Those of `configs` worth timing on the current device: they fit its shared memory and waste no tile of heads.

    shared: a configuration's bytes on an architecture, as `shared_bytes`.
    """
    driver = triton.runtime.driver.active
    limit = driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"]
    sm = driver.get_current_target().arch
    return [c for c in configs if shared(c, sm) <= limit and c.kwargs["BLOCK_H"] < max(2 * heads, 17)]


def prune(configs: list, named_args: dict, **kwargs) -> list:
    """`fitting` as Triton calls it before tuning, and Inductor while it traces."""
    return fitting(configs, {**named_args, **kwargs}["HEADS"], shared_bytes)


@triton.jit
def load_query(row, head_ok, FIRST: tl.constexpr, END: tl.constexpr, PART: tl.constexpr, FP32: tl.constexpr):
    """[H, PART] queries from column FIRST up to END, as a tuple; `row` points at each head's first."""
    parts = ()
    for i in tl.static_range(FIRST, END, PART):
        at = row[:, None] + (i + tl.arange(0, PART))[None, :]
        parts = parts + (tl.load(at, mask=head_ok[:, None], other=0.0).to(tl.float32 if FP32 else tl.bfloat16),)
    return parts


@triton.jit
def zeros_like(queries):
    """fp32 accumulators, one of the shape of each part."""
    parts = ()
    for i in tl.static_range(len(queries)):
        parts = parts + (tl.zeros([queries[i].shape[0], queries[i].shape[1]], dtype=tl.float32),)
    return parts


@triton.jit
def products(queries, rows, CHAINS: tl.constexpr):
    """[H, N] fp32: queries times rows, summed over their parts in CHAINS sums that do not wait for one another.

    mma.sync adds to its own result, 33 cycles after the last: one sum over 512 values would wait 32 times.
    """
    sums = ()
    for i in tl.static_range(CHAINS):
        sums = sums + (tl.dot(queries[i], rows[i].T, input_precision="ieee"),)
    for i in tl.static_range(CHAINS, len(queries)):
        kept = ()
        for j in tl.static_range(CHAINS):
            if j == i % CHAINS:
                kept = kept + (tl.dot(queries[i], rows[i].T, sums[j], input_precision="ieee"),)
            else:
                kept = kept + (sums[j],)
        sums = kept
    scores = sums[0]
    for i in tl.static_range(1, CHAINS):
        scores += sums[i]
    return scores


@triton.jit
def accumulate(acc, rescale, weights, rows):
    """acc * rescale + weights times rows, part by part."""
    grown = ()
    for i in tl.static_range(len(acc)):
        grown = grown + (tl.dot(weights, rows[i], acc[i] * rescale[:, None], input_precision="ieee"),)
    return grown


@triton.jit
def store_parts(at, acc, factor, head_ok):
    """acc * factor, its parts one after another from the pointers `at` of the heads' rows on."""
    for i in tl.static_range(len(acc)):
        value = (acc[i] * factor[:, None]).to(at.dtype.element_ty)
        tl.store(at[:, None] + tl.arange(0, acc[i].shape[1])[None, :], value, mask=head_ok[:, None])
        at += acc[i].shape[1]


@triton.autotune(
    configs=CONFIGS,
    key=["batch_bucket", "HEADS", "window_width", "extra_width"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit(do_not_specialize=["batch_bucket"])
def mma_kernel(
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
    DOT_FP32: tl.constexpr,  # operands of tl.dot in fp32, for Triton's interpreter only
    PDL: tl.constexpr,  # sm_90 and later: lets the combine be launched early
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

    queries = load_query(q + (request * HEADS + heads) * D, head_ok, 0, D, PART, DOT_FP32)
    top = tl.full([BLOCK_H], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = zeros_like(queries)
    CHAINS: tl.constexpr = 4 if BLOCK_H < 64 else 1  # wgmma is waited for one by one in any case

    # The indices of the next tile travel as a loop variable: loaded inside the loop, they would take a stage of the
    # pipeline from the rows they point at.
    slots = keep_slots(slots, split, window_tiles, window_length, extra_length, BLOCK_N)
    for tile in tl.range(split, end, splits):
        valid = slots >= 0
        cache = tl.where(tile < window_tiles, window_cache, extra_cache)
        start = cache + slots.to(tl.int64) * D
        rows = ()
        for i in tl.static_range(0, D, PART):
            at = start[:, None] + (i + tl.arange(0, PART))[None, :]
            part = tl.load(at, mask=valid[:, None], other=0.0)
            rows = rows + (part.to(tl.float32) if DOT_FP32 else part,)
        after = tile + splits
        slots = read_slots(after, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N)
        slots = keep_slots(slots, after, window_tiles, window_length, extra_length, BLOCK_N)
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
