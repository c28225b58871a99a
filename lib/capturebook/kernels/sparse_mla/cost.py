"""Bytes and floating-point operations of one sparse MLA decode call, and the least time they allow."""

from dataclasses import dataclass

from . import formats_v32
from .formats import TOKEN_BYTES, key_width
from .launch import HEAD_DIM


@dataclass(frozen=True)
class Cost:
    """What a call must move and compute, whatever the kernel."""

    bytes: int
    flops: int

    def floor(self, bytes_per_second: float, flops_per_second: float) -> float:
        """Seconds below which no kernel can be: the slower of memory and arithmetic. No launch cost in it."""
        return max(self.bytes / bytes_per_second, self.flops / flops_per_second)


def decode_cost(batch: int, heads: int, entries: int, cache: str = "bf16") -> Cost:
    """Cost of `decode` for a batch whose lists hold `entries` tokens in all (the sum of all lengths, both lists).

    FlashMLA's model: 2 * heads * entries * (d_qk + d_v) operations. Bytes: every selected row once, in bf16 or as the
    584 bytes of the fp8 cache (656 of V3.2's), with its int32 index; q and out in bf16; lse, sink and two lengths a
    request in four bytes each. A row that several requests select counts for each; the partial results of split-KV and
    the softmax count for nothing.
    """
    key = key_width(cache)
    row = {"bf16": 2 * key, "fp8": TOKEN_BYTES, "v32": formats_v32.TOKEN_BYTES}[cache]
    return Cost(
        bytes=entries * (row + 4) + batch * heads * (2 * (key + HEAD_DIM) + 4) + 4 * heads + 8 * batch,
        flops=2 * heads * entries * (key + HEAD_DIM),
    )
