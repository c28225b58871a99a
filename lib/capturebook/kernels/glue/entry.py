"""A compressed entry on its way into the cache: norm, rotation, fp8 values."""

import triton
import triton.language as tl

from .cache_entry import norm_rotate_store
from .tiles import wait_for_previous


@triton.jit
def entry_kernel(
    entry,  # [B, 512] bf16 or fp32
    gain,  # [512] fp32
    table,
    positions,
    cache,
    slots,
    PAGE: tl.constexpr,
    STRIDE: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per token: a compressed entry, stored where its slot is not negative."""
    token = tl.program_id(0).to(tl.int64)
    wait_for_previous(PDL)
    slot = tl.load(slots + token)
    if slot >= 0:
        position = tl.load(positions + token)
        norm_rotate_store(entry + token * 512, gain, table, position, cache, slot, PAGE, STRIDE, FP8, E4M3)
