"""The elementwise work between a layer's matmuls in torch ops: in fp32 inside, in float64 for float64 rows."""

import torch
from torch import Tensor

from ...kernels.compressor.reference import compress_reference, norm, rotate, wide
from ...kernels.compressor.stores import store
from ...kernels.glue.reference import mhc_post_reference, mhc_pre_reference


def enter(streams: Tensor, mix: Tensor, scale: Tensor, base: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A sublayer's input [B, hidden], collapsed from the streams [B, 4, hidden] and normed, and mHC's weights after."""
    collapsed, after, comb = mhc_pre_reference(streams, mix, scale, base, wide(streams.dtype))
    return norm(collapsed.to(streams.dtype), weight), after, comb


def leave(streams: Tensor, out: Tensor, after: Tensor, comb: Tensor) -> Tensor:
    """The streams after a sublayer that gave `out` [B, hidden]."""
    return mhc_post_reference(streams, out, after, comb, wide(streams.dtype)).to(streams.dtype)


def between(streams, out, after, comb, mix, scale, base, weight) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`leave` one sublayer and `enter` the next: (streams, x, after, comb)."""
    streams = leave(streams, out, after, comb)
    return streams, *enter(streams, mix, scale, base, weight)


def latents(latent, q_norm, kv_norm, table, positions, cache, slots) -> Tensor:
    """The query's part of the fused projection [B, q_rank + head_dim], normed; the rest of it, this token's key and
    value, is normed, rotated and stored at slots [B] int32 of the window cache."""
    q, kv = latent.split((len(q_norm), len(kv_norm)), dim=1)
    store(cache, slots, rotate(norm(kv, kv_norm), table, positions))
    return norm(q, q_norm)


def heads_in(q: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Queries [B, H, D] normed without weights and rotated; with zero queries behind them up to `heads`."""
    q = rotate(norm(q), table, positions)
    return torch.nn.functional.pad(q, (0, 0, 0, heads - q.shape[1])) if heads > q.shape[1] else q


def heads_out(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """What attention gave for the first `heads` heads, [B, heads * D], with the rotation of the values undone."""
    return rotate(out[:, :heads], table, positions, inverse=True).flatten(1)


def index_heads(q: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """The indexer's queries [B, H, D], rotated; they have no norm."""
    return rotate(q, table, positions)


def swiglu(both: Tensor, limit: float) -> Tensor:
    """silu(gate) * up of [N, 2 F] (gate, then up), both clamped, gate from above only."""
    gate, up = both.to(wide(both.dtype)).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)).to(both.dtype)


def compress(projected, ring, bias, weight, table, positions, cache, slots) -> None:
    """This token's values and gates into a compressor's ring and, where it ends a window, the entry into the cache:
    see `kernels.compressor.compress`. All requests pool, and what ends no window is not stored."""
    compress_reference(projected, ring, bias, weight, table, positions, cache, slots)


def compress_keys(projected, ring, bias, weight, table, positions, keys, slots) -> None:
    """The same for the indexer's keys."""
    compress_reference(projected, ring, bias, weight, table, positions, keys, slots, keys=True)
