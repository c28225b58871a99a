"""The Gluon kernels as operators that torch.compile does not look into: Inductor cannot re-emit a Gluon kernel."""

import torch
from torch import Tensor

from .combine import combine_kernel
from .gluon_fp8 import TILE, gluon_fp8_kernel
from .launch import HEAD_DIM, main_arguments, merge, targets
from .twin import decode_twin

CONFIG = {"CONSUMER_REGS": 184, "num_warps": 8}
"""Pinned, the only one: 8 warps of the producer, which leave the consumer's 8 what they need without a spill."""

CTAS = 132
"""CTAs that a call is split into where a batch has fewer: one fits on an SM, an H200 has 132."""


@torch.library.custom_op("capturebook::sparse_mla_decode_gluon_fp8", mutates_args=())
def decode_gluon_fp8(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """`decode` on fp8 pages with heads in multiples of 64, by `gluon_fp8_kernel` (on a CPU the torch twin)."""
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    if q.device.type == "cpu":
        return decode_twin(*tensors, scale)
    batch, heads, _ = q.shape
    splits = gluon_splits(batch, heads, window_indices.shape[1], extra_indices.shape[1])
    target, target_lse = targets(q, splits)
    gluon_fp8_kernel[(splits, heads // 64, batch)](
        **gluon_arguments(tensors, target, target_lse, scale, splits), **CONFIG
    )
    if splits == 1:
        return target, target_lse
    out, lse = targets(q, 1)
    merge(combine_kernel, target, target_lse, sink, out, lse, pdl=False)
    return out, lse


@decode_gluon_fp8.register_fake
def _(q, *others):
    return torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)


def gluon_splits(batch: int, heads: int, window_width: int, extra_width: int) -> int:
    """Splits of the joint list, from shapes alone: as many as keep CTAS CTAs, each with two tiles or more."""
    tiles = -(-window_width // TILE.value) - (-extra_width // TILE.value)
    return max(1, min(CTAS // (batch * (heads // 64)), -(-tiles // 2)))


def gluon_arguments(tensors: tuple[Tensor, ...], out: Tensor, lse: Tensor, scale: float, splits: int) -> dict:
    """Arguments of `gluon_fp8_kernel` by name, without what CONFIG sets."""
    wanted = gluon_fp8_kernel.arg_names
    arguments = main_arguments(tensors, out, lse, scale, splits == 1) | {"splits": splits, "d": HEAD_DIM}
    return {name: value for name, value in arguments.items() if name in wanted}
