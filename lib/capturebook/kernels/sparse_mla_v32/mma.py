"""V3.2's sparse MLA decode on tensor cores: one program per (tile of heads, split of the index list, request).

As `sparse_mla.mma_fp8`, with one list, and keys wider than values: the rotary part weighs in the scores alone. The 512
e4m3 values come in eight parts of 64, two for each fp32 scale. Operands are bf16; a scale that is no power of two
costs them one rounding.
"""

import triton
import triton.language as tl

from ..sparse_mla.fp8_rows import from_e4m3, load_raw, opaque
from ..sparse_mla.mma import accumulate, load_query, products, store_parts, zeros_like
from ..sparse_mla.tiles import finish, load_length


@triton.jit
def load_slots(list, tile, length, width, BLOCK_N: tl.constexpr):
    """[BLOCK_N] int32 slots of one tile, -1 beyond the length."""
    position = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    slots = tl.load(list + position, mask=position < width, other=-1)
    return tl.where(position < length, slots, -1)


@triton.jit
def mma_v32_kernel(
    q,  # [B, H, 576] bf16
    cache,  # [slots, 656] uint8
    indices,
    lengths,
    sink,
    out,
    lse,
    scale,
    width,
    HEADS: tl.constexpr,
    FINAL: tl.constexpr,
    E4M3: tl.constexpr,
    FP32: tl.constexpr,  # operands of tl.dot in fp32, for Triton's interpreter only
    PDL: tl.constexpr,
    ASM: tl.constexpr,  # inline PTX may be used (see sparse_mla.launch.run)
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    request = tl.program_id(2).to(tl.int64)
    heads = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)
    head_ok = heads < HEADS
    log2e = 1.4426950408889634
    scale_log2 = (scale * log2e).to(tl.float32)
    if PDL and not FINAL:
        tl.extra.cuda.gdc_launch_dependents()

    own = indices + request * width
    length = load_length(lengths, request, width)
    slots = load_slots(own, split, length, width, BLOCK_N)
    queries = load_query(q + (request * HEADS + heads) * 576, head_ok, 0, 576, 64, FP32)
    top = tl.full([BLOCK_H], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = zeros_like(queries[:8])
    for tile in tl.range(split, tl.cdiv(length, BLOCK_N), splits):
        valid = slots >= 0
        row = tl.maximum(slots, 0).to(tl.int64) * 656
        scale_at = (cache + 512).to(tl.pointer_type(tl.float32)) + (row >> 2)
        raw, scales = (), ()
        for i in tl.static_range(4):
            scales = scales + (tl.load(scale_at + i, mask=valid, other=0.0),)
        for i in tl.static_range(8):
            raw = raw + (load_raw(cache, row, valid, 64 * i, 64),)
        rope_at = (cache + 528).to(tl.pointer_type(tl.bfloat16)) + (row >> 1)
        rotary = tl.load(rope_at[:, None] + tl.arange(0, 64)[None, :], mask=valid[:, None], other=0.0)
        slots = load_slots(own, tile + splits, length, width, BLOCK_N)

        rows = ()
        for i in tl.static_range(8):
            part = raw[i]
            if ASM:
                part = opaque(part)
            value = from_e4m3(part, E4M3) * scales[i // 2][:, None]
            rows = rows + (value.to(queries[0].dtype),)
        keys = rows + (rotary.to(queries[0].dtype),)
        scores = products(queries, keys, 4) * scale_log2
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - base[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 1)
        acc = accumulate(acc, rescale, weights.to(queries[0].dtype), rows)
        top = new_top

    sink_log2 = tl.load(sink + heads, mask=head_ok, other=0.0) * log2e
    factor, row_lse = finish(top, total, sink_log2, FINAL)
    row = (request * splits + split) * HEADS + heads
    store_parts(out + row * 512, acc, factor, head_ok)
    tl.store(lse + row, row_lse, mask=head_ok)
