"""A compressor in one launch: ring, pooled softmax, norm, rotation and the cache; requests that end no window stop."""

import triton
import triton.language as tl

from ..glue.cache_entry import store_entry
from ..glue.tiles import rotate, sum_of_squares, to_e4m3, wait_for_previous


@triton.jit
def store_key(
    row,  # [1, 128] fp32
    keys,  # FP8: pages of bytes as indexer.formats has them; else rows of 128 bf16
    slot,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
):
    """Writes one key into its slot."""
    slot = slot.to(tl.int64)
    at = tl.arange(0, 128)[None, :]
    if FP8:
        page, place = keys + slot // 64 * 8448, slot % 64
        row = row.to(tl.bfloat16).to(tl.float32)
        scale = tl.maximum(tl.max(tl.max(tl.abs(row), 1), 0) / 448.0, 1e-12)
        tl.store(page + place * 128 + at, to_e4m3(tl.minimum(tl.maximum(row / scale, -448.0), 448.0), E4M3))
        tl.store((page + 8192).to(tl.pointer_type(tl.float32)) + place, scale)
    else:
        tl.store(keys + slot * 128 + at, row.to(keys.dtype.element_ty))


@triton.jit
def compress_kernel(
    projected,  # [B, 2 * SERIES * D] bf16: values, then gates
    ring,  # [B, SERIES * RATIO, 2 * SERIES * D] bf16
    bias,  # [RATIO, SERIES * D] fp32, added to the gates
    gain,  # [D] fp32
    table,  # [positions, 64] fp32
    positions,  # [B] int32
    cache,
    slots,  # [B] int32
    RATIO: tl.constexpr,
    SERIES: tl.constexpr,
    D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    KEYS: tl.constexpr,  # the cache is the indexer's
    PAGE: tl.constexpr,
    STRIDE: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per request."""
    WIDTH: tl.constexpr = SERIES * D
    TOKENS: tl.constexpr = SERIES * RATIO
    request = tl.program_id(0).to(tl.int64)
    wait_for_previous(PDL)
    position = tl.load(positions + request)
    place = position % TOKENS
    ring += request * TOKENS * 2 * WIDTH
    new = projected + request * 2 * WIDTH
    whole = tl.arange(0, 2 * WIDTH)
    tl.store(ring + place * 2 * WIDTH + whole, tl.load(new + whole))
    if (position + 1) % RATIO == 0:
        column = tl.arange(0, D)
        top = tl.full([D], float("-inf"), tl.float32)
        total = tl.zeros([D], tl.float32)
        mixed = tl.zeros([D], tl.float32)
        for start in tl.static_range(0, TOKENS, BLOCK_T):
            token = start + tl.arange(0, BLOCK_T)
            there = (token >= 0)[:, None]
            at = column[None, :]
            if SERIES == 2:
                # the second series of the window that ends, the first of the one before it, if there was one
                now = token // RATIO == position // RATIO % 2
                at = at + tl.where(now, D, 0)[:, None]
                there = (now | (position >= RATIO))[:, None]
            # this token's row is taken from where it came from: what was stored above other threads need not see
            own = (token == place)[:, None]
            line = ring + token[:, None] * 2 * WIDTH + at
            value = tl.where(own, tl.load(new + at), tl.load(line)).to(tl.float32)
            gate = tl.where(own, tl.load(new + WIDTH + at), tl.load(line + WIDTH)).to(tl.float32)
            gate += tl.load(bias + (token % RATIO)[:, None] * WIDTH + at)
            gate = tl.where(there, gate, float("-inf"))
            higher = tl.maximum(top, tl.max(gate, 0))
            kept = tl.exp(top - higher)
            weight = tl.exp(gate - higher[None, :])
            mixed = mixed * kept + tl.sum(weight * tl.where(there, value, 0.0), 0)
            total = total * kept + tl.sum(weight, 0)
            top = higher
        row = (mixed / total)[None, :]
        row *= tl.rsqrt(sum_of_squares(row) / D + 1e-6) * tl.load(gain + column)[None, :]
        row = rotate(row, table, position // RATIO * RATIO, False, 1, D, 64)
        slot = tl.load(slots + request)
        if KEYS:
            store_key(row, cache, slot, FP8, E4M3)
        else:
            store_entry(row, cache, slot, PAGE, STRIDE, FP8, E4M3)
