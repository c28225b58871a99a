"""Bytes and floating-point operations of mHC around one sublayer."""

from ..sparse_mla.cost import Cost
from .reference import COPIES, MIXES


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
