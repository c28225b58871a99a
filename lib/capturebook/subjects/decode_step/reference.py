"""What a step gave against float64: each layer alone, from its own input, with what was chosen held to its scores."""

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ...kernels.indexer.formats import values_of
from ...kernels.routing.reference import route_reference
from .experts import one_by_one
from .layer import Layer
from .model import Stack
from .ops import Ops


@dataclass
class Given:
    """What one layer of the step chose, and by how much the best that it left out beats the worst that it took.

    Gaps are relative to the row's largest |score| of index keys, and absolute for experts, whose scores are of size 1;
    inf for what is no selection at all (see `kernels.indexer.error`). A layer without a choice has no gap.
    """

    slots: Tensor | None
    experts: Tensor
    gaps: dict[str, float] = field(default_factory=dict)

    def select(self, q, weights, keys, page_table, lengths, topk) -> Tensor:
        self.gaps["slots"] = selection_gap(self.slots, q, weights, keys, page_table, lengths)
        return self.slots

    def choose(self, scores: Tensor, active: int) -> Tensor:
        ids = self.experts
        if ids.shape != (len(scores), active) or int(ids.min()) < 0 or int(ids.max()) >= scores.shape[1]:
            raise ValueError(f"experts: {list(ids.shape)}, {int(ids.min())} to {int(ids.max())}; allowed: 0 to experts")
        taken = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, ids, True)
        gap = scores.masked_fill(taken, -torch.inf).amax(1) - scores.masked_fill(~taken, torch.inf).amin(1)
        distinct = bool((taken.sum(1) == active).all())
        self.gaps["experts"] = float(gap.clamp_min(0).max()) if distinct else float("inf")
        return ids

    def ops(self) -> Ops:
        route = partial(route_reference, choose=self.choose)
        return Ops(attend, self.select, one_by_one, route)


AT_ONCE = 2**30
"""Bytes of float64 rows that `attend` and `selection_gap` gather at a time."""


def attend(q, window_cache, window_indices, window_lengths, extra_cache, extra_indices, extra_lengths, sink, scale):
    """`sparse_mla.decode_reference` over float64 rows [slots, 512], many requests at a time: a test holds it to that.

    One request after the other, each waited for by the host, took most of the time that a point of the sweep did.
    """
    lists = ((window_cache, window_indices, window_lengths), (extra_cache, extra_indices, extra_lengths))
    width = sum(indices.shape[1] for _, indices, _ in lists)
    each = max(1, AT_ONCE // max(1, width * q.shape[2] * 8))
    outs, lses = [], []
    for first in range(0, len(q), each):
        some = slice(first, first + each)
        rows = torch.cat([cache[indices[some].clamp_min(0).long()] for cache, indices, _ in lists], 1)
        valid = [
            (indices[some] >= 0) & (torch.arange(indices.shape[1], device=q.device) < lengths[some, None])
            for _, indices, lengths in lists
        ]
        scores = (q[some].double() @ rows.mT * scale).masked_fill(~torch.cat(valid, 1)[:, None], -torch.inf)
        lse = torch.logsumexp(scores, -1)
        out = torch.sigmoid(lse - sink.double())[..., None] * (torch.exp(scores - lse[..., None]) @ rows)
        outs.append(out.masked_fill(torch.isneginf(lse)[..., None], 0.0))  # an empty row: -inf less -inf
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)


def selection_gap(
    chosen: Tensor, q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, lengths: Tensor
) -> float:
    """`indexer.error` of a selection by `indexer.scores_reference`, many requests at a time: a test holds it to those.

    One after the other, each waited for by the host, 256 requests took a second in each variant of a layer.
    """
    rows = values_of(keys, torch.float64)
    page = rows.shape[1]
    place = torch.arange(min(-(-int(lengths.max()) // page), page_table.shape[1]) * page, device=keys.device)
    each, worst = max(1, AT_ONCE // max(1, len(place) * rows.shape[2] * 8)), 0.0
    for first in range(0, len(q), each):
        some = slice(first, first + each)
        slots = page_table[some, place // page].long() * page + place % page
        there = place < lengths[some, None]
        products = torch.relu(rows.flatten(0, 1)[slots] @ q[some].double().mT)
        scores = (products @ weights[some].double()[..., None])[..., 0]
        worst = max(worst, _gap(chosen[some].long(), slots.masked_fill(~there, -1), there, scores))
    return worst


def _gap(chosen: Tensor, slots: Tensor, there: Tensor, scores: Tensor) -> float:
    """Of requests with these slots and scores [B, W], -1 where there is none: the largest gap, inf for no selection."""
    taken = torch.arange(chosen.shape[1], device=chosen.device) < there.sum(1, keepdim=True)
    if bool(torch.where(taken, chosen < 0, chosen != -1).any()):
        return float("inf")
    if not slots.shape[1]:
        return 0.0
    ordered, origin = slots.sort(1)
    found = torch.searchsorted(ordered, chosen).clamp_max(slots.shape[1] - 1)
    hit = ordered.gather(1, found) == chosen
    inside = torch.zeros_like(there, dtype=torch.int64).scatter_add_(1, origin.gather(1, found), (hit & taken).long())
    if not bool((hit | ~taken).all()) or bool((inside > 1).any()):
        return float("inf")
    out = there & (inside == 0)
    best = scores.masked_fill(~out, -torch.inf).amax(1)
    least = scores.masked_fill(inside == 0, torch.inf).amin(1)
    gap = (best - least) / scores.masked_fill(~there, 0.0).abs().amax(1)
    return float(gap.nan_to_num(0.0).clamp_min(0.0).max())


def errors(stack: Stack, streams: Tensor, tokens: Tensor, outputs: dict[str, Tensor]) -> dict[str, float]:
    """{name: error} of all that a call of `stack` on these inputs gave, from the state that it started from.

    A layer's streams are off by max|got - want| / max|want|, where `want` is float64 arithmetic on the same weights,
    the step's own output of the layer before, its selection and its experts; those have a gap each (see `Given`).
    Nothing is changed, positions included.
    """
    found, lists = {}, stack.lists()
    for layer in stack.layers:
        given = Given(outputs.get(f"{layer.name}.slots"), outputs[f"{layer.name}.experts"])
        want = _exact(layer)(given.ops(), lists, streams.double(), tokens)
        got = outputs[f"{layer.name}.streams"]
        error = (got.double() - want["streams"]).abs().max() / want["streams"].abs().max()
        found[f"{layer.name}.streams"] = float(error) if bool(torch.isfinite(got).all()) else float("inf")
        found |= {f"{layer.name}.{name}": gap for name, gap in given.gaps.items()}
        if "experts" not in given.gaps and not torch.equal(want["experts"], given.experts):
            found[f"{layer.name}.experts"] = float("inf")  # the table's
        streams = got
    return found


def _exact(layer: Layer) -> Layer:
    """The layer over copies of its caches in float64: four times their bytes, so of one layer at a time."""
    return replace(layer, attention=replace(layer.attention, state=layer.attention.state.wide()))
