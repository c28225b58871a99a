"""What a step gave against float64: each layer alone, from its own input, with what was chosen held to its scores."""

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ...kernels.indexer import error as selection_error
from ...kernels.indexer import scores_reference
from ...kernels.routing.reference import route_reference
from ...kernels.sparse_mla import decode_reference
from .experts import one_by_one
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
        scores = scores_reference(q, weights, keys, page_table, lengths)
        self.gaps["slots"] = selection_error(self.slots, scores, page_table, lengths)
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
        return Ops(decode_reference, self.select, one_by_one, route)


def errors(stack: Stack, streams: Tensor, tokens: Tensor, outputs: dict[str, Tensor]) -> dict[str, float]:
    """{name: error} of all that a call of `stack` on these inputs gave, from the state that it started from.

    A layer's streams are off by max|got - want| / max|want|, where `want` is float64 arithmetic on the same weights,
    the step's own output of the layer before, its selection and its experts; those have a gap each (see `Given`).
    Nothing is changed, positions included.
    """
    found, lists = {}, stack.lists()
    for layer in stack.layers:
        given = Given(outputs.get(f"{layer.name}.slots"), outputs[f"{layer.name}.experts"])
        exact = replace(layer, attention=replace(layer.attention, state=layer.attention.state.wide()))
        want = exact(given.ops(), lists, streams.double(), tokens)
        got = outputs[f"{layer.name}.streams"]
        error = (got.double() - want["streams"]).abs().max() / want["streams"].abs().max()
        found[f"{layer.name}.streams"] = float(error) if bool(torch.isfinite(got).all()) else float("inf")
        found |= {f"{layer.name}.{name}": gap for name, gap in given.gaps.items()}
        if "experts" not in given.gaps and not torch.equal(want["experts"], given.experts):
            found[f"{layer.name}.experts"] = float("inf")  # the table's
        streams = got
    return found
