"""The torch twin of the indexer: gather, matmul, relu, weighted sum, torch.topk over the padded width; no Triton."""

import torch
from torch import Tensor

from .formats import PAGE, values_of

CHUNK = 64
"""Pages gathered at a time: the products of all 64 heads take 64 times the scores."""


def select_twin(
    q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, lengths: Tensor, topk: int = 512
) -> Tensor:
    """The indexer with torch ops. Shapes, dtypes and meaning as `select`.

    Matmuls run in fp32, on operands that bf16 holds exactly if the keys are bf16. No host synchronisation and no shape
    that depends on data: the work follows the width of the page table, as in what servers fall back to.
    """
    parts = [_scores(q, weights, keys, pages) for pages in page_table.split(CHUNK, dim=1)]
    scores = torch.cat(parts, dim=1) if parts else q.new_empty((len(q), 0), dtype=torch.float32)
    position = torch.arange(scores.shape[1], device=scores.device, dtype=lengths.dtype)
    # what unused pages hold, NaN included, ends here
    scores = torch.where(position < lengths[:, None], scores, float("-inf"))
    return best_slots(scores, page_table, lengths, topk)


def _scores(q: Tensor, weights: Tensor, keys: Tensor, pages: Tensor) -> Tensor:
    """[B, keys of these pages] fp32."""
    rows = values_of(keys[pages.flatten().long()], torch.float32).view(len(q), -1, q.shape[2])
    products = torch.relu(torch.bmm(rows, q.float().transpose(1, 2)))  # [B, keys, heads]
    return (products * weights[:, None, :]).sum(dim=-1)


def best_slots(scores: Tensor, page_table: Tensor, lengths: Tensor, topk: int) -> Tensor:
    """[B, topk] int32 slots of the largest of `scores` [B, padded width], by torch.topk; -1 where there are fewer."""
    count = min(topk, scores.shape[1])
    # Sorted, though any order would do: the keys of a row come before what is padding.
    position = scores.topk(count, dim=1).indices
    slots = page_table.gather(1, position // PAGE) * PAGE + position % PAGE
    slots = torch.where(position < lengths[:, None], slots, -1).int()
    return torch.nn.functional.pad(slots, (0, topk - count), value=-1)
