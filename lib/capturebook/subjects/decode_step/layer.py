"""One decoder layer of DeepSeek-V4 for one token a request: attention and experts, each between mHC's mixes."""

from dataclasses import dataclass

from torch import Tensor

from .attention import Attention
from .moe import Moe
from .ops import Ops
from .state import Lists
from .weights import Weights


@dataclass(frozen=True)
class Layer:
    """name: what its outputs and state are called."""

    name: str
    attention: Attention
    moe: Moe

    def __call__(self, ops: Ops, lists: Lists, streams: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """ "streams" [B, 4, hidden], "experts" [B, active] int64 and, in CSA, "slots" [B, topk] int32.

        streams: of the layer before. Caches and rings take in the token; positions are left as they are.
        """
        w = self.attention.weights
        x, after, comb = ops.enter(streams, *mix(w, "attention"))
        out, slots = self.attention(ops, lists, x)
        streams, x, after, comb = ops.between(streams, out, after, comb, *mix(w, "ffn"))
        out, ids = self.moe(ops, x, tokens)
        found = {"streams": ops.leave(streams, out, after, comb), "experts": ids}
        return found if slots is None else found | {"slots": slots}


def mix(weights: Weights, site: str) -> tuple[Tensor, ...]:
    """What `glue.enter` takes behind the streams: mHC's projection, scale and base, and the norm's weight."""
    return tuple(weights[f"{site}.{name}"] for name in ("mix", "mix_scale", "mix_base", "norm"))
