"""Routing in two kernels: scores, choice and weights of a token; the weighted sum of its experts."""

import triton
import triton.language as tl


@triton.jit
def route_kernel(
    logits,  # [B, E] bf16
    bias,  # [E] fp32; not read if HASH
    table,  # [vocabulary, ACTIVE] int32; not read without HASH
    tokens,  # [B] int64
    ids,  # [B, ACTIVE] int64
    weights,  # [B, ACTIVE] fp32
    scaling,
    experts,
    E: tl.constexpr,  # experts, up to a power of two
    ACTIVE: tl.constexpr,
    SLOTS: tl.constexpr,  # ACTIVE, up to a power of two
    HASH: tl.constexpr,
):
    """One program per token."""
    request = tl.program_id(0).to(tl.int64)
    expert, slot = tl.arange(0, E), tl.arange(0, SLOTS)
    x = tl.load(logits + request * experts + expert, mask=expert < experts, other=0.0).to(tl.float32)
    # softplus; log(1 + e) loses e's digits where e is small, and log1p is not there
    e = tl.exp(-tl.abs(x))
    log1p = tl.where(e < 1e-3, e * (1.0 - 0.5 * e), tl.log(1.0 + e))
    scores = tl.sqrt(tl.maximum(x, 0.0) + log1p)
    chosen = tl.zeros([SLOTS], tl.int32)
    found = tl.zeros([SLOTS], tl.float32)
    left = tl.where(expert < experts, scores, float("-inf"))
    if HASH:
        line = table + tl.load(tokens + request) * ACTIVE
        chosen = tl.load(line + slot, mask=slot < ACTIVE, other=0)
    else:
        left += tl.load(bias + expert, mask=expert < experts, other=0.0)
    for place in tl.static_range(ACTIVE):
        if HASH:
            best = tl.sum(tl.where(slot == place, chosen, 0), 0)
        else:
            best = tl.argmax(left, 0)
            chosen = tl.where(slot == place, best, chosen)
            left = tl.where(expert == best, float("-inf"), left)
        found = tl.where(slot == place, tl.sum(tl.where(expert == best, scores, 0.0), 0), found)
    total = tl.sum(found, 0) + 1e-20
    at = request * ACTIVE + slot
    tl.store(ids + at, chosen.to(tl.int64), mask=slot < ACTIVE)
    scaling = tl.cast(scaling, tl.float32)  # Inductor passes a Python float as fp64
    tl.store(weights + at, found / total * scaling, mask=slot < ACTIVE)


@triton.jit
def mix_experts_kernel(
    rows,  # [B * ACTIVE, H] bf16, sorted by expert
    place,  # [B * ACTIVE] int64: where the row of a (token, choice) is
    weights,  # [B, ACTIVE] fp32
    shared,  # [B, H] bf16
    out,  # [B, H] bf16
    H: tl.constexpr,
    ACTIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per (token, part of H)."""
    request = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(ACTIVE):
        row = tl.load(place + request * ACTIVE + choice)
        weight = tl.load(weights + request * ACTIVE + choice)
        total += weight * tl.load(rows + row * H + at).to(tl.float32)
    total += tl.load(shared + request * H + at).to(tl.float32)
    tl.store(out + request * H + at, total.to(out.dtype.element_ty))
