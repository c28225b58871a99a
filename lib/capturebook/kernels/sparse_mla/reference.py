"""Float64 reference of sparse MLA decode and the error metric that every fast path is held to."""

import torch
from torch import Tensor

from .formats import rows_at
from .launch import HEAD_DIM

TOLERANCE = 3e-3
"""Largest allowed `error`: bf16 output alone costs 1.7e-3, bf16 weights before the second matmul the rest."""


def decode_reference(
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
    """Sparse MLA decode in float64, one request at a time: (out [B, H, D] float64, lse [B, H] float64).

    Written from the definition, not from the kernels: per request, collect the valid rows, then for each head
    o = sum_i exp(s_i) v_i / (sum_i exp(s_i) + exp(sink)), lse = ln sum_i exp(s_i). An fp8 cache is dequantised exactly.
    out is [B, H, 512] where the keys are wider (V3.2). It reads lengths on the host.
    """
    batch, heads, width = q.shape
    out = torch.zeros(batch, heads, min(width, HEAD_DIM), dtype=torch.float64, device=q.device)
    lse = torch.full((batch, heads), float("-inf"), dtype=torch.float64, device=q.device)
    lists = ((window_cache, window_indices, window_lengths), (extra_cache, extra_indices, extra_lengths))
    for b in range(batch):
        rows = torch.cat([_valid_rows(cache, indices[b], int(lengths[b])) for cache, indices, lengths in lists])
        if not len(rows):
            continue
        scores = q[b].double() @ rows.T * scale
        lse[b] = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - lse[b][:, None])
        # exp(lse) / (exp(lse) + exp(sink)), which is 0 for sink=+inf and 1 for sink=-inf
        out[b] = torch.sigmoid(lse[b] - sink.double())[:, None] * (weights @ rows[:, :HEAD_DIM])
    return out, lse


def _valid_rows(cache: Tensor, indices: Tensor, length: int) -> Tensor:
    """[K, D] float64: the keys of the leftmost `length` entries that are not negative."""
    chosen = indices[: max(length, 0)]
    return rows_at(cache, chosen[chosen >= 0], torch.float64)


def error(out: Tensor, reference: Tensor) -> float:
    """max over (row, head) of ||out - reference|| / ||reference||; both [B, H, D], computed in float64.

    inf if a row is not finite, or not 0 where the reference is.
    """
    difference = (out.double() - reference.double()).norm(dim=-1)
    size = reference.double().norm(dim=-1)
    relative = torch.where(size > 0, difference / size, torch.where(difference == 0, 0.0, torch.inf))
    return float(torch.where(relative.isnan(), torch.inf, relative).max()) if relative.numel() else 0.0


def lse_error(lse: Tensor, reference: Tensor) -> float:
    """max |lse - reference| over [B, H], where equal infinities differ by 0; inf if one is NaN."""
    lse, reference = lse.double(), reference.double()
    difference = torch.where(lse == reference, 0.0, (lse - reference).abs())
    return float(torch.where(difference.isnan(), torch.inf, difference).max()) if difference.numel() else 0.0
