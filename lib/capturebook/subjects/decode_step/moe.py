"""The feed-forward part of a layer: a router by score or by token, routed experts, the shared expert."""

from dataclasses import dataclass

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
        chooser = (w.get("router.bias"), w.get("router.table"), tokens)
        ids, weights = ops.route(linear(x, w["router"]), *chooser, s.active, s.routed_scaling)
        up, down = (Matrices(w[f"experts.{name}"], w.get(f"experts.{name}.scale")) for name in ("up", "down"))
        rows, order = ops.experts(x, ids, up, down, swiglu)
        self.lanes.join("shared")
        return ops.combine(rows, order, weights, shared), ids
