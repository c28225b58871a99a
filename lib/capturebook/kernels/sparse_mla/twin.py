"""The torch twin of sparse MLA decode: gather, matmul, softmax with a sink; no Triton, on CPU and CUDA alike."""

import torch
from torch import Tensor

from .formats import rows_at
from .launch import HEAD_DIM


def decode_twin(
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
    """Sparse MLA decode with torch ops. Shapes, dtypes and meaning as `decode`.

    Queries and rows are bf16 values, which TF32 holds exactly, where it is on; all else is fp32. The weights are not
    rounded to bf16, as the tensor-core kernel must before its second matmul: so the twin is the more exact of the two.
    No host synchronisation and no shape that depends on data, so it can be captured and compiled without breaks.
    """
    window_rows, window_valid = _gather(window_cache, window_indices, window_lengths)
    extra_rows, extra_valid = _gather(extra_cache, extra_indices, extra_lengths)
    rows = torch.cat((window_rows, extra_rows), dim=1)  # [B, N, D]
    valid = torch.cat((window_valid, extra_valid), dim=1)[:, None, :]  # [B, 1, N]

    scores = torch.bmm(q.float(), rows.transpose(1, 2)) * scale  # [B, H, N]
    scores = scores.masked_fill(~valid, float("-inf"))
    top = scores.amax(dim=-1, keepdim=True) if scores.shape[-1] else scores.new_full((*q.shape[:2], 1), float("-inf"))
    top = top.masked_fill(top == float("-inf"), 0.0)  # an empty row: exp(-inf - 0) is 0, exp(-inf + inf) is NaN
    weights = torch.exp(scores - top)
    total = weights.sum(dim=-1, keepdim=True)
    denominator = total + torch.exp(sink[None, :, None] - top)
    out = torch.bmm(weights, rows[:, :, :HEAD_DIM]) / denominator
    out = out.masked_fill(total == 0.0, 0.0)  # empty row and sink -inf: 0 / 0
    lse = (top + torch.log(total)).squeeze(-1)
    return out.to(q.dtype), lse


def _gather(cache: Tensor, indices: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 rows [B, N, D], zero where not valid, and the mask [B, N] of entries that count."""
    position = torch.arange(indices.shape[1], device=indices.device, dtype=lengths.dtype)
    valid = (indices >= 0) & (position[None, :] < lengths[:, None])
    rows = rows_at(cache, torch.where(valid, indices, 0), torch.float32)
    # slot 0 stands in for padding and may hold anything, NaN included: 0 * NaN would reach the output
    return rows.masked_fill(~valid[:, :, None], 0.0), valid
