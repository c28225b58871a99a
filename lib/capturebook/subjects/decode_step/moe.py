"""The feed-forward part of a layer: a router by score or by token, routed experts, the shared expert."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import linear
from .experts import Matrices
from .lanes import Lanes
from .ops import Ops
from .shapes import Shape
from .weights import Weights


@dataclass(frozen=True)
class Moe:
    """One layer's experts, those with a table of tokens routed by it."""

    shape: Shape
    weights: Weights
    lanes: Lanes

    def __call__(self, ops: Ops, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(out [B, hidden], this rank's part of it; ids [B, active] int64 of the experts). tokens [B] int64."""
        w, s = self.weights, self.shape

        def swiglu(both):
            return ops.swiglu(both, s.limit)

        with self.lanes.fork("shared"):
            shared = linear(swiglu(linear(x, w["shared.up"])), w["shared.down"])
        scores = linear(x, w["router"]).to(torch.promote_types(x.dtype, torch.float32))
        scores = torch.nn.functional.softplus(scores).sqrt()
        if "router.table" in w:
            ids = w["router.table"][tokens].long()
        else:
            ids = ops.choose(scores + w["router.bias"], s.active)
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * s.routed_scaling
        up, down = (Matrices(w[f"experts.{name}"], w.get(f"experts.{name}.scale")) for name in ("up", "down"))
        routed = ops.experts(x, ids, weights, up, down, swiglu)
        self.lanes.join("shared")
        return routed + shared, ids
