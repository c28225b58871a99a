"""The same work in the fused operators of `kernels.glue`; bf16 only, and the sizes that they fix."""

from torch import Tensor

from ...kernels import compressor
from ...kernels import glue as fused


def enter(streams: Tensor, mix: Tensor, scale: Tensor, base: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`glue.enter` in two launches."""
    normed, _, _, after, comb = fused.mhc_pre_norm(streams, mix, scale, base, weight)
    return normed, after, comb


def between(streams, out, after, comb, mix, scale, base, weight) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`glue.between` in two launches."""
    new, normed, _, _, after, comb = fused.mhc_post_pre_norm(streams, out, after, comb, mix, scale, base, weight)
    return new, normed, after, comb


def leave(streams: Tensor, out: Tensor, after: Tensor, comb: Tensor) -> Tensor:
    """`glue.leave` in one launch."""
    return fused.mhc_post(streams, out, after, comb)


def latents(latent, q_norm, kv_norm, table, positions, cache, slots) -> Tensor:
    """`glue.latents` in one launch."""
    return fused.qkv_norm_store(latent, q_norm, kv_norm, table, positions, cache, slots)[0]


def heads_in(q: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """`glue.heads_in` in one launch."""
    return fused.q_norm_rope(q, table, positions, heads)


def compress(projected, ring, bias, weight, table, positions, cache, slots) -> None:
    """`glue.compress` in one launch."""
    compressor.compress(projected, ring, bias, weight, table, positions, cache, slots)


def compress_keys(projected, ring, bias, weight, table, positions, keys, slots) -> None:
    """`glue.compress_keys` in one launch."""
    compressor.compress(projected, ring, bias, weight, table, positions, keys, slots, keys=True)


def heads_out(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """`glue.heads_out` in one launch."""
    return fused.rope_inverse(out, table, positions, heads)


def index_heads(q: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """`glue.index_heads` in one launch."""
    return fused.rope(q, table, positions)


def swiglu(both: Tensor, limit: float) -> Tensor:
    """`glue.swiglu` in one launch."""
    return fused.swiglu(both, limit)
