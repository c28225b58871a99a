"""`decode`: the sparse MLA decode step of DeepSeek-V4 as one torch operator, `capturebook::sparse_mla_decode`."""

import torch
from torch import Tensor

from .twin import decode_twin

KERNELS = ("mma", "simt")
HEAD_DIM = 512


def decode(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str = "mma",
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per request over two index lists, softmaxed jointly.

    q [B, H, 512] bf16; caches [slots, 512] bf16, each row both key and value; indices [B, N] int32, slots in the list's
    cache, negative = padding; lengths [B] int32, only the leftmost `length` entries count; sink [H] fp32; scale
    multiplies q.k; kernel "mma" or "simt". Everything contiguous, on one device. N may be 0.
    Returns out [B, H, 512] bf16 and lse [B, H] fp32: natural log, sink excluded; an empty row gives 0 and -inf.
    An index at or beyond `slots` is undefined behaviour. Raises ValueError naming the argument.
    """
    return torch.ops.capturebook.sparse_mla_decode(
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
        scale,
        kernel,
    )


@torch.library.custom_op("capturebook::sparse_mla_decode", mutates_args=())
def _sparse_mla_decode(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    return decode_twin(
        q, window_cache, window_indices, window_lengths, extra_cache, extra_indices, extra_lengths, sink, scale
    )


@_sparse_mla_decode.register_fake
def _(q, window_cache, window_indices, window_lengths, extra_cache, extra_indices, extra_lengths, sink, scale, kernel):
    return torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
