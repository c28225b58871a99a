"""Routing in torch ops, in fp32 inside, in float64 for float64 rows: the eager code and the reference."""

from collections.abc import Callable

import torch
from torch import Tensor


def top(scores: Tensor, active: int) -> Tensor:
    """[B, active] int64: the experts with the largest biased scores."""
    return scores.topk(active, dim=-1, sorted=False).indices


def route_reference(
    logits: Tensor,
    bias: Tensor | None,
    table: Tensor | None,
    tokens: Tensor,
    active: int,
    scaling: float,
    choose: Callable[[Tensor, int], Tensor] = top,
) -> tuple[Tensor, Tensor]:
    """As `route`. choose(biased scores, active) -> ids, where a bias says how to choose."""
    scores = torch.nn.functional.softplus(logits.to(torch.promote_types(logits.dtype, torch.float32))).sqrt()
    ids = table[tokens].long() if bias is None else choose(scores + bias, active)
    weights = scores.gather(1, ids)
    return ids, weights / (weights.sum(-1, keepdim=True) + 1e-20) * scaling


def combine_reference(rows: Tensor, order: Tensor, weights: Tensor, shared: Tensor) -> Tensor:
    """As `combine`."""
    batch, active = weights.shape
    back = torch.empty_like(rows).index_copy_(0, order, rows)  # a permutation
    return (back.view(batch, active, -1) * weights[:, :, None]).sum(1).to(shared.dtype) + shared
