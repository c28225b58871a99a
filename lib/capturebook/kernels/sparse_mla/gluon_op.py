"""The Gluon kernels as operators that torch.compile does not look into: Inductor cannot re-emit a Gluon kernel."""

import torch
from torch import Tensor

from .combine import combine_kernel
from .formats import format_of
from .gluon_bf16 import gluon_bf16_kernel
from .gluon_fp8 import gluon_fp8_kernel
from .gluon_tiles import TILE
from .launch import HEAD_DIM, main_arguments, merge, targets
from .twin import decode_twin

GLUON_KERNELS = {"bf16": gluon_bf16_kernel, "fp8": gluon_fp8_kernel}
"""By cache format."""

GLUON_CONFIGS = {
    "bf16": {"CONSUMER_REGS": 192, "num_warps": 8},
    "fp8": {"CONSUMER_REGS": 184, "num_warps": 8},
}
"""Pinned, one each: 8 warps of the producer, and registers for the consumer's 8, so that neither spills."""

CTAS = 132
"""CTAs that a call is split into where a batch has fewer: one fits on an SM, an H200 has 132."""


def _decode(
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
    cache = format_of(window_cache)
    kernel = GLUON_KERNELS[cache]
    splits = gluon_splits(batch, heads, window_indices.shape[1], extra_indices.shape[1])
    target, target_lse = targets(q, splits)
    kernel[(splits, heads // 64, batch)](
        **gluon_arguments(tensors, target, target_lse, scale, splits), **GLUON_CONFIGS[cache]
    )
    if splits == 1:
        return target, target_lse
    out, lse = targets(q, 1)
    merge(combine_kernel, target, target_lse, sink, out, lse, pdl=True)
    return out, lse


decode_gluon_fp8 = torch.library.custom_op("capturebook::sparse_mla_decode_gluon_fp8", _decode, mutates_args=())
"""`decode` on fp8 pages with heads in multiples of 64, by `gluon_fp8_kernel` (on a CPU the torch twin)."""

decode_gluon_bf16 = torch.library.custom_op("capturebook::sparse_mla_decode_gluon_bf16", _decode, mutates_args=())
"""As `decode_gluon_fp8`, on bf16 rows."""


@decode_gluon_fp8.register_fake
@decode_gluon_bf16.register_fake
def _(q, *others):
    return torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)


def gluon_splits(batch: int, heads: int, window_width: int, extra_width: int) -> int:
    """Splits of the joint list, from shapes alone: as many as keep CTAS CTAs, each with two tiles or more."""
    tiles = -(-window_width // TILE.value) - (-extra_width // TILE.value)
    return max(1, min(CTAS // (batch * (heads // 64)), -(-tiles // 2)))


def gluon_arguments(tensors: tuple[Tensor, ...], out: Tensor, lse: Tensor, scale: float, splits: int) -> dict:
    """Arguments of a Gluon kernel by name, without what GLUON_CONFIGS sets."""
    wanted = GLUON_KERNELS[format_of(tensors[1])].arg_names
    arguments = main_arguments(tensors, out, lse, scale, splits == 1) | {"splits": splits, "d": HEAD_DIM}
    return {name: value for name, value in arguments.items() if name in wanted}
