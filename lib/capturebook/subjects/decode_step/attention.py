"""The attention of a layer: queries, the window's token, the compressors, the indexer, sparse MLA, the output."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .lanes import Lanes
from .ops import Ops
from .shapes import RATIO, Shape
from .state import LayerState, Requests
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

    def __call__(self, ops: Ops, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(out [B, hidden], this rank's part of it; slots [B, topk] int32 that the indexer chose, None without one).

        Side by side where lanes are on: the window's token, the compressor and the indexer, while the queries are made.
        """
        s, w, at = self.shape, self.weights, self.requests
        latent = linear(x, w["qkv_a"])
        with self.lanes.fork("window"):
            ops.store_window(latent, w["kv_norm"], self.table, at.positions, self.state.window, at.window_slots())
        with self.lanes.fork("compressor"):
            if self.kind != "swa":
                self._compress(ops, x, "compress", self.state.ring, ops.store_entry, self.state.entries)
        q_latent = ops.query_latent(latent, w["q_norm"])
        with self.lanes.fork("indexer"):
            slots = self._index(ops, x, q_latent) if self.kind == "csa" else None
        q = linear(q_latent, w["q_b"]).view(len(x), s.heads, s.head_dim)
        q = ops.heads_in(q, self.table, at.positions, self.padded)
        window, lengths = at.window_list(s.window)
        self.lanes.join("window", "compressor", "indexer")
        extra, extra_lengths = self._extra(slots)
        cache = self.state.window if self.state.entries is None else self.state.entries
        sink = torch.nn.functional.pad(w["sink"], (0, self.padded - s.heads))
        out, _ = ops.attend(q, self.state.window, window, lengths, cache, extra, extra_lengths, sink, s.head_dim**-0.5)
        out = ops.heads_out(out, self.table, at.positions, s.heads).view(len(x), s.groups, -1)
        out = torch.einsum("bgd,grd->bgr", out, w["o_a"].to(out.dtype)).flatten(1)
        return linear(out, w["o_b"]), slots

    def _extra(self, slots: Tensor | None) -> tuple[Tensor, Tensor]:
        """The second list of the attention and its lengths: what was chosen, all entries, or nothing."""
        at = self.requests
        if self.kind == "swa":
            return at.page_table[:, :0].contiguous(), torch.zeros_like(at.positions)
        if self.kind == "hca":
            return at.entry_list("hca"), at.entries("hca")
        return slots, at.entries("csa").clamp_max(self.shape.topk)

    def _compress(self, ops: Ops, x: Tensor, name: str, ring: Tensor, store, cache: Tensor) -> None:
        """This token into the ring, and the entry into the cache where it closes a window."""
        at, w, ratio = self.requests, self.weights, RATIO[self.kind]
        rows = torch.arange(len(x), device=x.device)
        ring.index_put_((rows, at.positions % ring.shape[1]), linear(x, w[name]).to(ring.dtype))
        pooled = ops.pool(ring, w[f"{name}.bias"], at.positions)
        first, closes = at.positions // ratio * ratio, (at.positions + 1) % ratio == 0
        store(pooled, w[f"{name}.norm"], self.table, first, cache, at.entry_slots(self.kind), closes)

    def _index(self, ops: Ops, x: Tensor, q_latent: Tensor) -> Tensor:
        """Slots of the entries that this step's token attends to."""
        s, w, at = self.shape, self.weights, self.requests
        self._compress(ops, x, "index.compress", self.state.key_ring, ops.store_key, self.state.keys)
        q = linear(q_latent, w["index.q"]).view(len(x), s.index_heads, s.index_dim)
        q = ops.index_heads(q, self.table, at.positions)
        weights = linear(x, w["index.weights"]).to(torch.promote_types(x.dtype, torch.float32))
        weights = weights * (s.index_heads * s.index_dim) ** -0.5
        return ops.select(q, weights, self.state.keys, at.page_table, at.entries("csa"), s.topk)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T in x's dtype."""
    return torch.nn.functional.linear(x, weight.to(x.dtype))
