"""A producer and a consumer of warps that hand 256 values over in shared memory, by the textbook: is racecheck content?

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
def _produce(x, slots, ready, free, count, EARLY: gl.constexpr):
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    for i in range(count):
        buffer = i & 1
        mbarrier.wait(free.index(buffer), ((i >> 1) & 1) ^ 1)
        values = gl.load(x + i * 256 + gl.arange(0, 256, layout=LINE))
        if EARLY:
            mbarrier.arrive(ready.index(buffer), count=1)
            slots.index(buffer).store(values)
        else:
            slots.index(buffer).store(values)
            barrier()
            mbarrier.arrive(ready.index(buffer), count=1)


@gluon.jit
def _consume(out, slots, ready, free, count):
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    at = gl.arange(0, 256, layout=LINE)
    for i in range(count):
        buffer = i & 1
        mbarrier.wait(ready.index(buffer), (i >> 1) & 1)
        values = slots.index(buffer).load(LINE)
        barrier()
        mbarrier.arrive(free.index(buffer), count=1)
        gl.store(out + i * 256 + at, values * 2)


@gluon.jit
def handover_kernel(x, out, count, EARLY: gl.constexpr):
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    slots = gl.allocate_shared_memory(gl.float32, [2, 256], FLAT)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2):
        mbarrier.init(ready.index(buffer), count=1)
        mbarrier.init(free.index(buffer), count=1)
    first = gl.program_id(0) * count * 256
    gl.warp_specialize(
        [
            (_produce, (x + first, slots, ready, free, count, EARLY)),
            (_consume, (out + first, slots, ready, free, count)),
        ],
        [8],
        [64],
    )


if __name__ == "__main__":
    x = torch.arange(40 * 5 * 256, device="cuda", dtype=torch.float32)
    out = torch.full_like(x, float("nan"))
    handover_kernel[(40,)](x, out, 5, sys.argv[1] == "early", num_warps=8)
    print("right" if torch.equal(out, x * 2) else "wrong")
