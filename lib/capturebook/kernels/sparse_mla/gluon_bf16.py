"""Sparse MLA decode from a bf16 cache for wgmma (sm_90), in Gluon: as gluon_fp8.py, but rows need no conversion.

    producer (8 warps)                              consumer (8 warps), see gluon_consume.py
      wait until buffer i % 2 is free
      copy the rows of tile i into it (cp.async)      attention over tile i once it is ready
      have it said ready when they have landed        say that the buffer is free

A tile is 64 KiB: two of them and the queries fill an SM's shared memory. To bring later rows into L2 meanwhile, as the
fp8 kernel does, made it slower (38.75 for 36.26 us, 128 requests of 640 entries, H200).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from .gluon_compat import async_load, barrier
from .gluon_consume import consume
from .gluon_tiles import TILE, read_slots, split_tiles


@gluon.jit
def _produce(caches, lists, first, count, tiles, bias, ready, free):
    """Fills tiles first to first + count: `tiles` [2, 64, 512] bf16 are the two buffers, `bias` [2, 64] 0 or -inf."""
    LINES: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [gl.num_warps(), 1], [1, 0])
    ROW: gl.constexpr = gl.SliceLayout(1, LINES)
    column = gl.expand_dims(gl.arange(0, 512, layout=gl.SliceLayout(0, LINES)), 0)
    window_tiles = lists[4]
    end = first + count

    slots = read_slots(first, end, lists, ROW)
    for i in range(count):
        buffer = i & 1
        tile = first + i
        valid = slots >= 0
        cache = gl.where(tile < window_tiles, caches[0], caches[1])
        rows = cache + gl.expand_dims(gl.maximum(slots, 0).to(gl.int64) * 512, 1)
        slots = read_slots(tile + 1, end, lists, ROW)
        mbarrier.wait(free.index(buffer), ((i >> 1) & 1) ^ 1)
        async_load(tiles.index(buffer), rows + column, mask=gl.expand_dims(valid, 1))
        async_copy.mbarrier_arrive(ready.index(buffer), increment_count=False)
        bias.index(buffer).store(gl.where(valid, 0.0, -float("inf")))
        barrier()
        mbarrier.arrive(ready.index(buffer), count=1)
    async_copy.wait_group(0)


@gluon.jit(do_not_specialize=["window_width", "extra_width", "splits", "d"])
def gluon_bf16_kernel(
    q,
    window_cache,
    window_indices,
    window_lengths,
    extra_cache,
    extra_indices,
    extra_lengths,
    sink,
    out,  # as in gluon_fp8_kernel
    lse,
    units,
    scale,
    window_width,
    extra_width,
    splits,
    d,
    HEADS: gl.constexpr,
    CONSUMER_REGS: gl.constexpr,
):
    """Grid (splits, HEADS / 64, requests). num_warps is the producer's; the consumer has CONSUMER_REGS registers."""
    if out.dtype.element_ty != gl.bfloat16:
        gdc_launch_dependents()  # the combine may be set up meanwhile; it waits for this kernel's end
    lists, first, count = split_tiles(
        window_indices, window_lengths, window_width, extra_indices, extra_lengths, extra_width, splits
    )
    HALVES: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    queries = gl.allocate_shared_memory(gl.bfloat16, [64, 512], HALVES)
    tiles = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, 512], HALVES)
    weights = gl.allocate_shared_memory(gl.bfloat16, [64, TILE], HALVES)
    bias = gl.allocate_shared_memory(gl.float32, [2, TILE], FLAT)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2):
        mbarrier.init(ready.index(buffer), count=32 * gl.num_warps() + 1)  # each thread's copies, and the bias
        mbarrier.init(free.index(buffer), count=1)
    caches = (window_cache, extra_cache)
    gl.warp_specialize(
        [
            (_produce, (caches, lists, first, count, tiles, bias, ready, free)),
            (consume, (q, sink, out, lse, units, scale, count, d, queries, tiles, weights, bias, ready, free, HEADS)),
        ],
        [8],
        [CONSUMER_REGS],
    )
