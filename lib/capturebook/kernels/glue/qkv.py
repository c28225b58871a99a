"""Between the first projections of the attention and the second: norms, fp8 values, the token's cache entry."""

import triton
import triton.language as tl

from .cache_entry import norm_rotate_store
from .tiles import store_groups, sum_of_squares, wait_for_previous


@triton.jit(do_not_specialize=["batch"])
def qkv_kernel(
    latent,  # [B, Q + 512] bf16: the query's latent, and the token's entry of the cache
    q_norm,  # [Q] fp32
    kv_norm,  # [512] fp32
    table,  # [positions, 64] fp32
    positions,  # [B] int32
    cache,
    slots,  # [B] int32, negative: not stored
    normed,  # [B, Q] bf16
    values,  # [B, Q] e4m3 bytes
    scales,  # [Q / 128, B] fp32
    batch,
    Q: tl.constexpr,
    PAGE: tl.constexpr,
    STRIDE: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """Two programs per token: one for the query's latent, one for the entry."""
    token = tl.program_id(0).to(tl.int64)
    wait_for_previous(PDL)
    line = latent + token * (Q + 512)
    if tl.program_id(1) == 0:
        group = tl.arange(0, Q // 128)
        at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
        tile = tl.load(line + at).to(tl.float32)
        tile *= tl.rsqrt(sum_of_squares(tile) / Q + 1e-6) * tl.load(q_norm + at)
        tl.store(normed + token * Q + at, tile.to(normed.dtype.element_ty))
        store_groups(tile, values, scales, token, group, batch, Q, True, E4M3)
    else:
        slot = tl.load(slots + token)
        if slot >= 0:
            position = tl.load(positions + token)
            norm_rotate_store(line + Q, kv_norm, table, position, cache, slot, PAGE, STRIDE, FP8, E4M3)
