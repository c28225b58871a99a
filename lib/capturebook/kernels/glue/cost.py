"""Bytes and floating-point operations of a layer's glue."""

from ..sparse_mla.cost import Cost
from ..sparse_mla.formats import TOKEN_BYTES
from .reference import COPIES, MIXES

TABLE_ROW = 4 * 64
"""Bytes of one position's cosines and sines."""


def mhc_cost(batch: int, d: int = 4096) -> Cost:
    """Cost of `mhc_pre` and `mhc_post` together.

    Bytes: before, the streams (bf16) and the projection (fp32) read, the collapsed stream written; after, streams and
    sublayer output read, streams written; the weights in between once each way, in fp32. Operations: 2 * MIXES a value
    for the projection, 2 a value of the streams for the collapse, 2 * (COPIES + 1) for the new stream; the Sinkhorn
    iterations, on 16 values a token, count for nothing.
    """
    values = batch * COPIES * d
    weights = 2 * 4 * batch * COPIES * (1 + COPIES)
    return Cost(
        bytes=3 * 2 * values + 4 * MIXES * COPIES * d + 2 * 2 * batch * d + weights,
        flops=values * (2 * MIXES + 2 + 2 * (COPIES + 1)),
    )


def fp8_bytes(rows: int, d: int) -> int:
    """Bytes of rows in fp8: values, and a scale in fp32 for each 128."""
    return rows * (d + 4 * (d // 128))


def chain_cost(batch: int, d: int = 4096, heads: int = 64, q: int = 1024, width: int = 2048) -> Cost:
    """Cost of the glue of one layer: what `subjects.glue_chain:build` runs; fp8 cache.

    Twice `mhc_post_pre_norm`: `mhc_cost`, and the normed stream also in fp8, with the norm's weights. Query latent and
    cache entry, query heads, attention output, SwiGLU: inputs and outputs once, gains in fp32, a row of the table and
    a position for each of the three that rotate. Operations: mHC's, and for the rest 6 a value, which nothing hangs on.
    """
    mhc = mhc_cost(batch, d)
    head_values = batch * heads * 512
    others = (
        batch * 2 * (q + 512) + 4 * (q + 512) + 2 * batch * q + fp8_bytes(batch, q) + batch * (TOKEN_BYTES + 4),
        2 * 2 * head_values,
        2 * head_values + fp8_bytes(batch, heads * 512),
        2 * 2 * batch * width + fp8_bytes(batch, width),
        3 * batch * (TABLE_ROW + 4),
    )
    values = 2 * batch * d + batch * (q + 512) + 2 * head_values + batch * width
    return Cost(
        bytes=2 * (mhc.bytes + fp8_bytes(batch, d) + 4 * d) + sum(others),
        flops=2 * mhc.flops + 6 * values,
    )
