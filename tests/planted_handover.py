"""A producer and a consumer of warps that hand 64 values over in shared memory, by the textbook: is racecheck content?

    python planted_handover.py textbook|early

early: the producer says ready before it has written, which is a race.
"""

import sys

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from capturebook.kernels.sparse_mla.gluon_compat import barrier


@gluon.jit
def _produce(x, values, ready, free, count, EARLY: gl.constexpr):
    ROW: gl.constexpr = gl.SliceLayout(1, gl.BlockedLayout([1, 4], [8, 4], [gl.num_warps(), 1], [1, 0]))
    at = gl.arange(0, 64, layout=ROW)
    for i in range(count):
        buffer = i & 1
        mbarrier.wait(free.index(buffer), ((i >> 1) & 1) ^ 1)
        value = gl.load(x + i * 64 + at)
        if EARLY:
            mbarrier.arrive(ready.index(buffer), count=1)
        values.index(buffer).store(value)
        barrier()
        if not EARLY:
            mbarrier.arrive(ready.index(buffer), count=1)


@gluon.jit
def _consume(out, values, ready, free, count):
    COLUMN: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 2], [8, 4], [1, gl.num_warps()], [1, 0]))
    at = gl.arange(0, 64, layout=COLUMN)
    for i in range(count):
        buffer = i & 1
        mbarrier.wait(ready.index(buffer), (i >> 1) & 1)
        value = values.index(buffer).load(COLUMN)
        barrier()
        mbarrier.arrive(free.index(buffer), count=1)
        gl.store(out + i * 64 + at, value * 2)


@gluon.jit
def handover_kernel(x, out, count, EARLY: gl.constexpr):
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    values = gl.allocate_shared_memory(gl.float32, [2, 64], FLAT)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2):
        mbarrier.init(ready.index(buffer), count=1)
        mbarrier.init(free.index(buffer), count=1)
    first = gl.program_id(0) * count * 64
    gl.warp_specialize(
        [
            (_produce, (x + first, values, ready, free, count, EARLY)),
            (_consume, (out + first, values, ready, free, count)),
        ],
        [8],
        [64],
    )


if __name__ == "__main__":
    x = torch.arange(40 * 5 * 64, device="cuda", dtype=torch.float32)
    out = torch.full_like(x, float("nan"))
    handover_kernel[(40,)](x, out, 5, sys.argv[1] == "early", num_warps=8)
    print("right" if torch.equal(out, x * 2) else "wrong")
