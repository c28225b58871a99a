"""Float64 reference of V3.2's sparse MLA decode, and its torch twin."""

import torch
from torch import Tensor

from .formats import NOPE, dequantise


def decode_v32_reference(
    q: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor, sink: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """(out [B, H, 512], lse [B, H]) in float64, one request at a time, from the definition.

    Arguments as `decode_v32`. It reads lengths on the host.
    """
    batch, heads, _ = q.shape
    out = torch.zeros(batch, heads, NOPE, dtype=torch.float64, device=q.device)
    lse = torch.full((batch, heads), float("-inf"), dtype=torch.float64, device=q.device)
    for b in range(batch):
        chosen = indices[b, : max(int(lengths[b]), 0)]
        keys = dequantise(cache, chosen[chosen >= 0])
        if len(keys):
            scores = q[b].double() @ keys.T * scale
            lse[b] = torch.logsumexp(scores, dim=-1)
            weights = torch.exp(scores - lse[b][:, None])
            out[b] = torch.sigmoid(lse[b] - sink.double())[:, None] * (weights @ keys[:, :NOPE])
    return out, lse


def decode_v32_twin(
    q: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor, sink: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """As `decode_v32`, with torch ops in fp32: no host synchronisation, no shape that depends on data."""
    position = torch.arange(indices.shape[1], device=indices.device, dtype=lengths.dtype)
    valid = (indices >= 0) & (position < lengths[:, None])
    keys = dequantise(cache, torch.where(valid, indices, 0), torch.float32).masked_fill(~valid[:, :, None], 0.0)
    scores = (torch.bmm(q.float(), keys.transpose(1, 2)) * scale).masked_fill(~valid[:, None], float("-inf"))
    top = scores.amax(dim=-1, keepdim=True).masked_fill(~valid.any(1)[:, None, None], 0.0)
    weights = torch.exp(scores - top)
    total = weights.sum(dim=-1, keepdim=True)
    out = torch.bmm(weights, keys[:, :, :NOPE]) / (total + torch.exp(sink[None, :, None] - top))
    return out.masked_fill(total == 0.0, 0.0).to(q.dtype), (top + torch.log(total)).squeeze(-1)
