"""The Gluon kernels as operators that torch.compile does not look into: Inductor cannot re-emit a Gluon kernel."""

import torch
from torch import Tensor

from .combine import combine_kernel
from .formats import format_of
from .gluon_plan import plan
from .launch import merge, targets
from .twin import decode_twin


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
    if batch == 0:
        return targets(q, 1)
    chosen = plan(batch, heads, window_indices.shape[1], extra_indices.shape[1], format_of(window_cache))
    results = chosen.results(q)
    chosen.kernel[chosen.grid](**chosen.arguments(tensors, results, scale), **chosen.config.all_kwargs())
    if chosen.splits == 1:
        return results[:2]
    out, lse = targets(q, 1)
    merge(combine_kernel, *results[:2], sink, out, lse, True, *results[2:])
    return out, lse


decode_gluon_fp8 = torch.library.custom_op("capturebook::sparse_mla_decode_gluon_fp8", _decode, mutates_args=())
"""`decode` on fp8 pages with heads in multiples of 64, as `gluon_plan.plan` says (on a CPU the torch twin)."""

decode_gluon_bf16 = torch.library.custom_op("capturebook::sparse_mla_decode_gluon_bf16", _decode, mutates_args=())
"""As `decode_gluon_fp8`, on bf16 rows."""


@decode_gluon_fp8.register_fake
@decode_gluon_bf16.register_fake
def _(q, *others):
    return torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
