"""The consumer of the Gluon kernels: softmax and both products over tiles of bf16 rows in shared memory (wgmma)."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .gluon_compat import barrier, reinterpret
from .gluon_tiles import TILE
from .gluon_units import in_units, store_units
from .tiles import finish as tl_finish

LOG2E = gl.constexpr(1.4426950408889634)

finish = gluon.jit(tl_finish.fn)


@gluon.jit
def consume(
    q,
    sink,
    out,
    lse,
    units,
    scale,
    count,
    d,
    queries,
    tiles,
    weights,
    bias,
    ready,
    free,
    HEADS: gl.constexpr,
):
    """Attention of 64 heads over `count` tiles, on 8 warps; writes 64 rows of out, lse and, of a split, units.

    queries [64, 512], tiles [2, 64, 512] and weights [64, 64] bf16, bias [2, 64] fp32 are shared memory; tile i lies in
    tiles[i % 2] and is 0 in bias[i % 2] where an entry counts, -inf where not, once `ready` says so; `free` is told
    when it is done with. d: 512. HEADS: of the whole call. That a tile is written before the products read it is for
    this side to order: who writes it by cp.async cannot, and others would wait for their loads.
    """
    FINAL: gl.constexpr = out.dtype.element_ty == gl.bfloat16
    LINES: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16])
    VALUES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 128, 16])
    HALVES: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT_HEAD: gl.constexpr = gl.SliceLayout(1, VALUES)
    q_chunks = reinterpret(queries, gl.bfloat16, [8, 64, 64], HALVES)
    chunks = reinterpret(tiles, gl.bfloat16, [16, TILE, 64], HALVES)
    first_head = gl.program_id(1) * 64

    row = gl.program_id(2).to(gl.int64) * HEADS + first_head
    line = gl.expand_dims(gl.arange(0, 64, layout=gl.SliceLayout(1, LINES)), 1) * 512
    line += gl.expand_dims(gl.arange(0, 512, layout=gl.SliceLayout(0, LINES)), 0)
    queries.store(gl.load(q + row * 512 + line))
    sink_log2 = gl.load(sink + first_head + gl.arange(0, 64, layout=HEAD)) * LOG2E
    top = gl.full([64], -float("inf"), gl.float32, HEAD)
    total = gl.full([64], 0.0, gl.float32, HEAD)
    acc = gl.full([64, 512], 0.0, gl.float32, VALUES)
    zero = gl.full([64, TILE], 0.0, gl.float32, SCORES)
    fence_async_shared()
    barrier()

    for i in range(count):
        buffer = i & 1
        mbarrier.wait(ready.index(buffer), (i >> 1) & 1)
        fence_async_shared()
        rows = chunks.index(buffer * 8).permute((1, 0))
        scores = warpgroup_mma(q_chunks.index(0), rows, zero, use_acc=False, is_async=True)
        # d is 512, which the compiler is not told: unrolled, the addresses of all operands would take registers
        for c in range(1, d // 64):
            rows = chunks.index(buffer * 8 + c).permute((1, 0))
            scores = warpgroup_mma(q_chunks.index(c), rows, scores, is_async=True)
        scores = warpgroup_mma_wait(0, deps=[scores])
        scores = scores * (scale * LOG2E) + gl.expand_dims(bias.index(buffer).load(gl.SliceLayout(0, SCORES)), 0)
        new_top = gl.maximum(top, gl.max(scores, 1))
        base = gl.where(new_top == -float("inf"), 0.0, new_top)
        p = gl.exp2(scores - gl.expand_dims(base, 1))
        rescale = gl.exp2(top - base)
        top = new_top
        weights.store(p.to(gl.bfloat16))
        fence_async_shared()
        barrier()
        acc = acc * gl.expand_dims(gl.convert_layout(rescale, OUT_HEAD), 1)
        acc = warpgroup_mma(weights, tiles.index(buffer), acc, is_async=True)
        total = total * rescale + gl.sum(p, 1)
        acc = warpgroup_mma_wait(0, deps=[acc])
        barrier()
        mbarrier.arrive(free.index(buffer), count=1)

    factor, row_lse = finish(top, total, sink_log2, FINAL)
    acc = acc * gl.expand_dims(gl.convert_layout(factor, OUT_HEAD), 1)
    row = (gl.program_id(2).to(gl.int64) * gl.num_programs(0) + gl.program_id(0)) * HEADS + first_head
    if FINAL:
        queries.store(acc.to(gl.bfloat16))  # all scores are there: the queries' memory turns the values into lines
        barrier()
        gl.store(out + row * 512 + line, queries.load(LINES))
    else:
        unit, scaled = in_units(acc)
        queries.store(gl.convert_layout(scaled, VALUES, assert_trivial=True))
        barrier()
        gl.store(out + row * 512 + line, queries.load(LINES).to(gl.float16, bitcast=True))
        store_units(units + row * 8, unit, 8)
    gl.store(lse + row + gl.arange(0, 64, layout=HEAD), row_lse)
