"""Small kernels for the build tests, as examples that the cross-compiler takes."""

import os
from types import SimpleNamespace

import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.autotune(
    [
        triton.Config({"BLOCK_N": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_N": 64}, num_warps=4, num_stages=3),
    ],
    key=["n"],
)
@triton.jit
def gather_dot(q, rows, indices, out, n, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr):
    """out[h, d] = sum over n of (q[h] . rows[indices[n]]) * rows[indices[n], d]"""
    h, d = tl.arange(0, BLOCK_H), tl.arange(0, D)
    left = tl.load(q + h[:, None] * D + d[None, :])
    total = tl.zeros([BLOCK_H, D], tl.float32)
    for start in range(0, n, BLOCK_N):
        slots = tl.load(indices + start + tl.arange(0, BLOCK_N)).to(tl.int64)
        tile = tl.load(rows + slots[:, None] * D + d[None, :])
        total = tl.dot(tl.dot(left, tile.T).to(tl.bfloat16), tile, total)
    tl.store(out + h[:, None] * D + d[None, :], total.to(tl.bfloat16))


def _example(name, kernel, args, kwargs, pinned=lambda sm: None):
    return SimpleNamespace(name=name, kernel=kernel, args=args, kwargs=kwargs, pinned=pinned)


def _add_one(aligned: bool = True):
    whole = torch.zeros(1032, dtype=torch.float32)
    x = whole[:1024] if aligned else whole[1:1025]
    return _example("add_one", add_one, (x, torch.zeros(1024), 1024), {"BLOCK": 1024})


def _gather_dot(offset: int = 0, width: int = 64, heads: int = 64):
    q = torch.zeros(heads, width, dtype=torch.bfloat16)
    rows = torch.zeros(offset + 64 * width, dtype=torch.bfloat16)[offset:].view(64, width)
    args = (q, rows, torch.zeros(640, dtype=torch.int32), torch.empty_like(q), 640)
    kwargs = {"D": width, "BLOCK_H": heads}
    return _example("gather_dot", gather_dot, args, kwargs, lambda sm: gather_dot.configs[1])


def examples():
    return [_add_one(), _gather_dot()]


def unaligned_examples():
    """The same calls with pointers that are not divisible by 16: other kernels in all but their source."""
    return [_add_one(aligned=False), _gather_dot(offset=1)]


class _Aborting:
    """An example whose arguments end the process as a failed assertion in the compiler does."""

    name, kernel, kwargs, pinned = "aborting", add_one, {"BLOCK": 16}, staticmethod(lambda sm: None)

    @property
    def args(self):
        os.abort()


def _broken():
    """BLOCK must be a power of two: the compiler raises."""
    x = torch.zeros(1024)
    return _example("broken", add_one, (x, x, 1024), {"BLOCK": 100})


def failing_examples():
    return [_Aborting(), _broken(), _add_one()]


tuned_add_one = triton.autotune([triton.Config({"BLOCK": n}) for n in (256, 512, 1024)], key=["n"])(add_one)


def three_configs():
    x = torch.zeros(1024)
    pinned = {80: tuned_add_one.configs[2], 120: triton.Config({"BLOCK": 128}, num_warps=2)}
    return _example("tuned_add_one", tuned_add_one, (x, x, 1024), {}, pinned.get)


def no_examples():
    raise RuntimeError("no kernels today")
