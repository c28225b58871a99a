"""Bytes and floating-point operations of one indexer call."""

from ..sparse_mla.cost import Cost


def select_cost(batch: int, keys: int, topk: int = 512, heads: int = 64, d: int = 128, key_bytes: int = 256) -> Cost:
    """Cost of `select` for a batch whose requests have `keys` keys in all (the sum of all lengths).

    Bytes: every key once (`key_bytes`: 256 in bf16, 132 in fp8), an int32 page number for 64 keys, q in bf16, weights
    in fp32, the length and `topk` slots of a request. Scores count for nothing: a fused kernel would not write them.
    Operations: 2 * heads * d a key for the products, 2 * heads for relu and weighted sum; the selection counts for
    nothing.
    """
    return Cost(
        bytes=keys * key_bytes + keys // 64 * 4 + batch * (heads * (2 * d + 4) + 4 + 4 * topk),
        flops=keys * heads * 2 * (d + 1),
    )
