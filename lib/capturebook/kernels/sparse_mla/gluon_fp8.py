"""Sparse MLA decode from the fp8 cache for wgmma (sm_90), in Gluon: a producer and a consumer in one CTA.

A program has one tile of 64 heads, one request and one split of its index lists, as many tiles of 64 entries as the
lengths on the device leave it. Two tiles of bf16 rows lie in shared memory, 64 KiB each, so that one is filled while
the other is used; with the queries (64 KiB) one CTA fits on an SM.

    producer (8 warps)                              consumer (8 warps: 2 warp groups)
      wait until buffer i % 2 is free                 wait until tile i is ready
      dequantise tile i into it, from registers       s = q k^T: each group 64 heads x 32 entries
      fetch tile i + 1 into registers, part by part   softmax; weights to shared memory in bf16
      say that it is ready                            o += p v: each group 64 heads x 256 values
      bring tile i + 2 into L2                        say that the buffer is free

Bytes go through registers, since beside two tiles in bf16 there is no room for a ring of raw ones. Operands are bf16,
which holds every value that the format can, whatever its scales. Rows that are not to be read are zeros and their
scores -inf.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from .gluon_compat import barrier, reinterpret
from .gluon_consume import consume
from .gluon_rows import fetch_groups, prefetch_rows, row_pointers, store_groups
from .gluon_tiles import TILE, read_slots, split_tiles


@gluon.jit
def _fetch(slots, in_window, caches, WINDOW_PAGE: gl.constexpr, EXTRA_PAGE: gl.constexpr, GROUPS: gl.constexpr):
    """(valid, scales, five parts) of a tile: its rows as bytes, in groups of 64, zeros where not valid."""
    rows, scales = row_pointers(slots, in_window, caches, WINDOW_PAGE, EXTRA_PAGE)
    valid = slots >= 0
    scales = gl.load(scales.to(gl.pointer_type(gl.int64)), mask=valid, other=0)
    raw0 = fetch_groups(rows, valid, 0, 2, GROUPS)
    raw2 = fetch_groups(rows, valid, 2, 2, GROUPS)
    raw4 = fetch_groups(rows, valid, 4, 2, GROUPS)
    raw6 = fetch_groups(rows, valid, 6, 1, GROUPS)
    rope = fetch_groups(rows, valid, 7, 2, GROUPS)
    return valid, scales, raw0, raw2, raw4, raw6, rope


@gluon.jit
def _produce(
    caches, lists, first, count, words, bias, ready, free, WINDOW_PAGE: gl.constexpr, EXTRA_PAGE: gl.constexpr
):
    """Fills tiles first to first + count: `words` [2, 64, 256] int32 are the two buffers, `bias` [2, 64] 0 or -inf."""
    GROUPS: gl.constexpr = gl.BlockedLayout([1, 1, 4], [8, 1, 4], [gl.num_warps(), 1, 1], [2, 1, 0])
    ROW: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, GROUPS))
    window_tiles = lists[4]
    end = first + count

    in_window = first < window_tiles
    first_slots = read_slots(first, end, lists, ROW)
    slots = read_slots(first + 1, end, lists, ROW)
    far_slots = read_slots(first + 2, end, lists, ROW)
    valid, scales, raw0, raw2, raw4, raw6, rope = _fetch(
        first_slots, in_window, caches, WINDOW_PAGE, EXTRA_PAGE, GROUPS
    )
    far_rows, far_scales = row_pointers(slots, first + 1 < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)
    prefetch_rows(slots, far_rows, far_scales)
    for i in range(count):
        buffer = i & 1
        tile = first + i + 1
        part = words.index(buffer)
        mbarrier.wait(free.index(buffer), ((i >> 1) & 1) ^ 1)
        bias.index(buffer).store(gl.where(valid, 0.0, -float("inf")))
        # A part of the next tile is fetched while this one is dequantised, once its registers are free (one part later:
        # at once, a register spills). No fence here: its MEMBAR would wait for all loads. The reader has it.
        store_groups(part.slice(0, 64, dim=1), raw0, scales, 0, GROUPS)
        rows, scales_at = row_pointers(slots, tile < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)
        soon = slots >= 0
        store_groups(part.slice(64, 64, dim=1), raw2, scales, 2, GROUPS)
        raw0 = fetch_groups(rows, soon, 0, 2, GROUPS)
        store_groups(part.slice(128, 64, dim=1), raw4, scales, 4, GROUPS)
        raw2 = fetch_groups(rows, soon, 2, 2, GROUPS)
        store_groups(part.slice(192, 32, dim=1), raw6, scales, 6, GROUPS)
        raw4 = fetch_groups(rows, soon, 4, 2, GROUPS)
        scales = gl.load(scales_at.to(gl.pointer_type(gl.int64)), mask=soon, other=0)
        part.slice(224, 32, dim=1).store(gl.reshape(rope, [TILE, 32]))
        raw6 = fetch_groups(rows, soon, 6, 1, GROUPS)
        rope = fetch_groups(rows, soon, 7, 2, GROUPS)
        valid = soon
        barrier()
        mbarrier.arrive(ready.index(buffer), count=1)
        far_rows, far_scales = row_pointers(far_slots, tile + 1 < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)
        prefetch_rows(far_slots, far_rows, far_scales)
        slots = far_slots
        far_slots = read_slots(tile + 2, end, lists, ROW)


@gluon.jit(do_not_specialize=["window_width", "extra_width", "splits", "d"])
def gluon_fp8_kernel(
    q,
    window_cache,
    window_indices,
    window_lengths,
    extra_cache,
    extra_indices,
    extra_lengths,
    sink,
    out,  # bf16 if there is one split, else fp16 [B, splits, H, 512] in units, each split normalised on its own
    lse,
    units,  # fp32 [B, splits, H, 8], of 64 columns each; not written if there is one split
    scale,
    window_width,
    extra_width,
    splits,
    d,
    HEADS: gl.constexpr,
    WINDOW_PAGE: gl.constexpr,
    EXTRA_PAGE: gl.constexpr,
    CONSUMER_REGS: gl.constexpr,
):
    """Grid (splits, HEADS / 64, requests). num_warps is the producer's; the consumer has CONSUMER_REGS registers."""
    if out.dtype.element_ty != gl.bfloat16:
        gdc_launch_dependents()  # the combine may be set up meanwhile; it waits for this kernel's end
    lists, first, count = split_tiles(
        window_indices, window_lengths, window_width, extra_indices, extra_lengths, extra_width, splits
    )
    HALVES: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    WORDS: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    queries = gl.allocate_shared_memory(gl.bfloat16, [64, 512], HALVES)
    tiles = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, 512], HALVES)
    words = reinterpret(tiles, gl.int32, [2, TILE, 256], WORDS)
    weights = gl.allocate_shared_memory(gl.bfloat16, [64, TILE], HALVES)
    bias = gl.allocate_shared_memory(gl.float32, [2, TILE], FLAT)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2):
        mbarrier.init(ready.index(buffer), count=1)
        mbarrier.init(free.index(buffer), count=1)

    caches = (window_cache, extra_cache)
    gl.warp_specialize(
        [
            (_produce, (caches, lists, first, count, words, bias, ready, free, WINDOW_PAGE, EXTRA_PAGE)),
            (consume, (q, sink, out, lse, units, scale, count, d, queries, tiles, weights, bias, ready, free, HEADS)),
        ],
        [8],
        [CONSUMER_REGS],
    )
