"""The attention of a layer: queries, the window's token, the compressors, the indexer, sparse MLA, the output."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .lanes import Lanes
from .ops import Ops
from .shapes import Shape
from .state import LayerState, Lists, Requests
from .weights import Weights


@dataclass(frozen=True)
class Attention:
    """One layer's attention. padded: heads that the kernel is given, at least those of the rank."""

    shape: Shape
    kind: str
    weights: Weights
    state: LayerState
    requests: Requests
    table: Tensor
    lanes: Lanes
    padded: int

    sink: Tensor = field(init=False)
    """Of all heads that the kernel is given: 0 for those that the rank does not have, whose output is not used."""

    def __post_init__(self):
        sink = torch.nn.functional.pad(self.weights["sink"], (0, self.padded - self.shape.heads))
        object.__setattr__(self, "sink", sink)

    def __call__(self, ops: Ops, lists: Lists, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(out [B, hidden], this rank's part of it; slots [B, topk] int32 that the indexer chose, None without one).

        Side by side where lanes are on: the compressor and the indexer, while the queries are made.
        """
        s, w, positions = self.shape, self.weights, self.requests.positions
        latent = linear(x, w["qkv_a"])
        with self.lanes.fork("compressor"):
            if self.kind != "swa":
                self._compress(ops.compress, lists, x, "compress", self.state.ring, self.state.entries)
        stored = (self.table, positions, self.state.window, lists.window_slots)
        q_latent = ops.latents(latent, w["q_norm"], w["kv_norm"], *stored)
        with self.lanes.fork("indexer"):
            chosen = self._index(ops, lists, x, q_latent) if self.kind == "csa" else None
        q = linear(q_latent, w["q_b"]).view(len(x), s.heads, s.head_dim)
        q = ops.heads_in(q, self.table, positions, self.padded)
        self.lanes.join("compressor", "indexer")
        slots, lengths = lists.second[self.kind]
        second = (self._second_cache(), chosen if slots is None else slots, lengths)
        out, _ = ops.attend(q, self.state.window, *lists.window, *second, self.sink, s.head_dim**-0.5)
        out = ops.heads_out(out, self.table, positions, s.heads).view(len(x), s.groups, -1)
        out = torch.einsum("bgd,grd->bgr", out, w["o_a"].to(out.dtype)).flatten(1)
        return linear(out, w["o_b"]), chosen

    def _second_cache(self) -> Tensor:
        """What the second list's slots are in; of a layer without entries nothing is read."""
        return self.state.window if self.state.entries is None else self.state.entries

    def _compress(self, compress, lists: Lists, x: Tensor, name: str, ring: Tensor, cache: Tensor) -> None:
        """This token into the ring, and the entry into the cache where it closes a window."""
        w = self.weights
        weights = (w[f"{name}.bias"], w[f"{name}.norm"])
        stored = (self.table, self.requests.positions, cache, lists.entry_slots[self.kind])
        compress(linear(x, w[name]), ring, *weights, *stored)

    def _index(self, ops: Ops, lists: Lists, x: Tensor, q_latent: Tensor) -> Tensor:
        """Slots of the entries that this step's token attends to."""
        s, w, at = self.shape, self.weights, self.requests
        self._compress(ops.compress_keys, lists, x, "index.compress", self.state.key_ring, self.state.keys)
        q = linear(q_latent, w["index.q"]).view(len(x), s.index_heads, s.index_dim)
        q = ops.index_heads(q, self.table, at.positions)
        weights = linear(x, w["index.weights"]).to(torch.promote_types(x.dtype, torch.float32))
        weights = weights * (s.index_heads * s.index_dim) ** -0.5
        return ops.select(q, weights, self.state.keys, at.page_table, lists.entries["csa"], s.topk)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T in x's dtype."""
    return torch.nn.functional.linear(x, weight.to(x.dtype))
