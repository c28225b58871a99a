"""Float64 reference of the indexer, and the error metric that every selection is held to."""

import torch
from torch import Tensor

from .formats import values_of

TOLERANCE = 1e-5
"""Largest allowed `error`: scores are fp32 sums of exact products of bf16, off by a few 1e-7 of the row's largest."""


def scores_reference(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, lengths: Tensor) -> list[Tensor]:
    """For each request the float64 scores of its keys, [length]: sum over heads h of weights_h * relu(q_h . k).

    Shapes and meaning as `select`. Written from the definition, one request at a time; it reads lengths on the host.
    """
    found = []
    rows = values_of(keys, torch.float64)
    for row, slots in enumerate(slots_of(page_table, lengths, rows.shape[1])):
        k = rows.flatten(0, 1)[slots]
        products = torch.relu(k @ q[row].double().T)  # [length, heads]
        found.append(products @ weights[row].double())
    return found


def slots_of(page_table: Tensor, lengths: Tensor, page: int) -> list[Tensor]:
    """For each request the cache slots of its keys in order, [length] int64: page number * `page` + place in it."""
    place = torch.arange(page, device=page_table.device)
    width = page_table.shape[1] * page
    return [
        (page_table[row].long()[:, None] * page + place).flatten()[: min(max(length, 0), width)]
        for row, length in enumerate(lengths.tolist())
    ]


def error(chosen: Tensor, scores: list[Tensor], page_table: Tensor, lengths: Tensor, page: int = 64) -> float:
    """How wrong a selection is, given the float64 scores: the largest over all requests.

    chosen [B, topk] int32 slots in any order, -1 behind them. For one request, by how much the best key that was left
    out beats the worst that was taken, relative to the largest |score|: 0 for the right set, next to nothing where two
    keys all but tie. inf if a slot is taken twice or is none of the request's, if there are not exactly
    min(topk, length) of them, or if padding stands before a slot.
    """
    worst = 0.0
    for row, slots in enumerate(slots_of(page_table, lengths, page)):
        taken = chosen[row].long()
        count = min(len(taken), len(slots))
        if (taken[:count] < 0).any() or (taken[count:] != -1).any():
            return float("inf")
        place = torch.full((int(max(taken.max(), slots.max() if len(slots) else 0)) + 1,), -1, device=chosen.device)
        place[slots] = torch.arange(len(slots), device=chosen.device)
        positions = place[taken[:count]]
        if (positions < 0).any() or len(positions.unique()) < count:
            return float("inf")
        if count in (0, len(slots)):
            continue
        inside = torch.zeros(len(slots), dtype=torch.bool, device=chosen.device)
        inside[positions] = True
        gap = scores[row][~inside].max() - scores[row][inside].min()
        worst = max(worst, float(gap / scores[row].abs().max()) if gap > 0 else 0.0)
    return worst
