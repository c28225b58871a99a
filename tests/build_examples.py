"""Small kernels for the build tests, as examples that the cross-compiler takes."""

import os
from dataclasses import replace

import torch
import triton
import triton.language as tl

from capturebook.kernels.sparse_mla.examples import Example


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


def _add_one(aligned: bool = True, **changed):
    whole = torch.zeros(1032, dtype=torch.float32)
    x = whole[:1024] if aligned else whole[1:1025]
    return Example(
        "add_one", add_one, None, {"x": x, "y": torch.zeros(1024), "n": 1024, "BLOCK": 1024, **changed}, False
    )


def gather_dot_args(offset: int = 0, width: int = 64, heads: int = 64) -> dict:
    q = torch.zeros(heads, width, dtype=torch.bfloat16)
    rows = torch.zeros(offset + 64 * width, dtype=torch.bfloat16)[offset:].view(64, width)
    indices = torch.zeros(640, dtype=torch.int32)
    return dict(q=q, rows=rows, indices=indices, out=torch.empty_like(q), n=640, D=width, BLOCK_H=heads)


def _gather_dot(**shape):
    args = gather_dot_args(**shape)
    return [Example("gather_dot", gather_dot, c, args, c is gather_dot.configs[1]) for c in gather_dot.configs]


def examples(sm):
    return [_add_one(), *_gather_dot()]


def unaligned_examples(sm):
    """The same calls with pointers that are not divisible by 16: other kernels in all but their source."""
    return [_add_one(aligned=False), *_gather_dot(offset=1)]


class _Aborting:
    """An example whose arguments end the process as a failed assertion in the compiler does."""

    name, kernel, config, pinned = "aborting", add_one, None, False

    @property
    def args(self):
        os.abort()


def failing_examples(sm):
    """Compilations that abort, that raise (BLOCK must be a power of two) and that work."""
    return [_Aborting(), replace(_add_one(BLOCK=100), name="broken"), _add_one()]


def three_configs(sm):
    args = {k: v for k, v in _add_one().args.items() if k != "BLOCK"}
    pinned = {80: 1024, 120: 512}[sm]
    configs = [triton.Config({"BLOCK": n}) for n in (256, 512, 1024)]
    return [Example("tuned_add_one", add_one, c, args, c.kwargs["BLOCK"] == pinned) for c in configs]


def no_examples(sm):
    raise RuntimeError("no kernels today")
