"""numpy_gluon.py for the kernels of a producer and a consumer: each in a thread, handing over by mbarriers that wait.

A tile is whole in an array; `reinterpret` gives its words, or its chunks of 64 columns as NVMMASharedLayout lays them
out. What a thread raises ends the kernel, and so does a wait of a few seconds, which is a deadlock.
"""

import operator
import threading

import numpy as np

from numpy_gluon import KINDS, Shared, Tensor, _binary, from_bf16, language, where

ordered = threading.local()
"""`fence`: whether what this thread wrote or waited for in shared memory was fenced before wgmma reads it."""

PATIENCE = 5.0
"""Seconds that a wait may take."""

THREADS = 256
"""Of a partition of 8 warps: each arrives once for its copies."""

for _name in ("ne", "or_", "gt", "le"):
    setattr(Tensor, f"__{_name.rstrip('_')}__", _binary(getattr(operator, _name)))
Tensor.__bool__ = lambda self: bool(self.values)
Tensor.__hash__ = None


class Memory(Shared):
    """Shared memory with the views that the kernels take of it; a view writes to the whole."""

    def index(self, i):
        return Memory(self.values[int(i)], self.kind)

    def store(self, tensor):
        ordered.fence = False
        super().store(tensor)

    def slice(self, start, length, dim=0):
        index = [slice(None)] * self.values.ndim
        index[dim] = slice(start, start + length)
        return Memory(self.values[tuple(index)], self.kind)

    def permute(self, order):
        return Memory(self.values.transpose(order), self.kind)


class Chunks:
    """[8 tiles, 64, 64] of [tiles, 64, 512]."""

    def __init__(self, values):
        self.values = values.reshape(-1, 64, 512)

    def index(self, k):
        tile, chunk = divmod(int(k), 8)
        return Memory(self.values[tile][:, 64 * chunk : 64 * chunk + 64], "bfloat16")


def reinterpret(memory, kind, shape, layout):
    return Memory(memory.values.view(np.int32), "int32") if kind == "int32" else Chunks(memory.values)


class Barrier:
    """An mbarrier: `wait(parity)` until the phase of that parity is complete."""

    def __init__(self):
        self.changed = threading.Condition()

    def init(self, count):
        self.count, self.left, self.phases = count, count, 0

    def arrive(self, count):
        with self.changed:
            assert count <= self.left, "more arrivals than the phase has"
            self.left -= count
            if not self.left:
                self.left, self.phases = self.count, self.phases + 1
                self.changed.notify_all()

    def wait(self, parity):
        ordered.fence = False
        with self.changed:
            assert self.changed.wait_for(lambda: self.phases % 2 != int(parity), PATIENCE), "deadlock"


class Barriers:
    def __init__(self, count):
        self.all = [Barrier() for _ in range(count)]

    def index(self, i):
        return self.all[int(i)]


class mbarrier:
    MBarrierLayout = staticmethod(lambda: None)
    init = staticmethod(lambda barrier, count: barrier.init(count))
    wait = staticmethod(lambda barrier, parity: barrier.wait(parity))
    arrive = staticmethod(lambda barrier, count: barrier.arrive(count))


class async_copy:
    wait_group = staticmethod(lambda count: None)
    mbarrier_arrive = staticmethod(lambda barrier, increment_count: barrier.arrive(THREADS))


def at_once(partitions, warps, registers):
    """gl.warp_specialize."""
    raised = []

    def run(function, arguments):
        try:
            function(*arguments)
        except Exception as exc:
            raised.append(exc)

    threads = [threading.Thread(target=run, args=partition) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def specialised(memory, place, programs):
    """`numpy_gluon.language` with what the wgmma kernels use besides."""
    gl = language(memory, place, programs)
    raw = {"float32": np.nan, "bfloat16": 0x7FC0}
    assembly = gl.inline_asm_elementwise

    def chosen(condition, yes, no):
        if isinstance(yes, float) and isinstance(no, float):
            return Tensor(np.where(condition.values, np.float32(yes), np.float32(no)), "float32")
        return where(condition, yes, no)

    more = dict(
        NVMMASharedLayout=gl.SliceLayout,
        num_warps=lambda: THREADS // 32,
        convert_layout=lambda x, layout, assert_trivial=False: x,
        where=chosen,
        inline_asm_elementwise=lambda text, *rest, **named: (
            None if "prefetch" in text else assembly(text, *rest, **named)
        ),
        allocate_shared_memory=lambda kind, shape, layout: (
            Barriers(shape[0]) if kind == "int64" else Memory(np.full(shape, raw[kind], KINDS[kind]), kind)
        ),
        warp_specialize=at_once,
    )
    gl.__dict__.update(more)
    return gl


def fence():
    ordered.fence = True


def wgmma(a, b, acc, use_acc=True, is_async=False):
    """An operand that is not finite where the other is 0 would poison the sum, as on the GPU."""
    assert ordered.fence, "no fence between shared memory and wgmma, which reads it by another way"
    left, right = (from_bf16(np.ascontiguousarray(x.values)).astype(np.float64) for x in (a, b))
    return Tensor((left @ right + acc.values).astype(np.float32), "float32")
