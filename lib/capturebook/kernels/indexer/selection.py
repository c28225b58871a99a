"""Top-k of each request's scores as cache slots, bounded by device lengths: bisection for the k-th largest score."""

import triton
import triton.language as tl

from ..sparse_mla.tiles import load_length

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1)
    for block, warps in ((2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16))
]
"""BLOCK: scores that stay in registers; a longer row's others are read again in each pass, from the caches."""


@triton.jit
def ordered(line, start, length, BLOCK: tl.constexpr):
    """BLOCK scores from `start` as int32 that compare like the scores; the smallest int32 beyond the length.

    A float's bits compare like its size; a negative one's are flipped. Adding zero makes -0.0 the 0.0 it equals.
    """
    position = start + tl.arange(0, BLOCK)
    bits = (tl.load(line + position, mask=position < length, other=0.0) + 0.0).to(tl.int32, bitcast=True)
    return tl.where(position < length, bits ^ ((bits >> 31) & 0x7FFFFFFF), -2147483648)


@triton.jit
def count(head, line, length, threshold, BLOCK: tl.constexpr):
    """How many scores of a row are at or above the threshold; `head` holds the first BLOCK of them."""
    found = tl.sum((head >= threshold).to(tl.int32), 0)
    for start in tl.range(BLOCK, length, BLOCK):
        found += tl.sum((ordered(line, start, length, BLOCK) >= threshold).to(tl.int32), 0)
    return found


@triton.autotune(configs=CONFIGS, key=["batch_bucket"])
@triton.jit(do_not_specialize=["batch_bucket"])
def select_kernel(
    scores,  # [B, table_width * PAGE] fp32; what lies beyond the length is not read
    page_table,  # [B, table_width] int32
    lengths,  # [B] int32
    slots,  # [B, topk] int32: in order of position, -1 behind them
    topk,
    table_width,
    batch_bucket,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,  # a power of two >= topk
    BLOCK: tl.constexpr,
):
    """One program per request. Of equal scores at the edge the first in order of position are taken."""
    row = tl.program_id(0).to(tl.int64)
    length = load_length(lengths, row, table_width * PAGE)
    line = scores + row * table_width * PAGE
    head = ordered(line, 0, length, BLOCK)

    lowest = tl.min(tl.where(tl.arange(0, BLOCK) < length, head, 2147483647), 0)
    highest = tl.max(head, 0)
    for start in tl.range(BLOCK, length, BLOCK):
        tail = ordered(line, start, length, BLOCK)
        lowest = tl.minimum(lowest, tl.min(tl.where(start + tl.arange(0, BLOCK) < length, tail, 2147483647), 0))
        highest = tl.maximum(highest, tl.max(tail, 0))

    # More than topk scores are >= low, `above` <= topk of them >= high: at most 32 passes, some 18 for normal scores.
    # A row of up to topk keys takes none: all it has are above or equal to the lowest.
    low = lowest.to(tl.int64)
    high = tl.where(length > topk, highest.to(tl.int64), low) + 1
    above = 0
    while (above < topk) & (high - low > 1):
        middle = low + (high - low) // 2
        found = count(head, line, length, middle.to(tl.int32), BLOCK)
        low = tl.where(found > topk, middle, low)
        high = tl.where(found > topk, high, middle)
        above = tl.where(found > topk, above, found)

    edge = (high - 1).to(tl.int32)  # all above it are taken, and of those equal to it as many as are missing
    missing = topk - above
    table = page_table + row * table_width
    target = slots + row * topk
    taken, equal = take(head, 0, 0, 0, edge, missing, length, table, target, PAGE, BLOCK)
    for start in tl.range(BLOCK, length, BLOCK):
        tail = ordered(line, start, length, BLOCK)
        taken, equal = take(tail, start, taken, equal, edge, missing, length, table, target, PAGE, BLOCK)
    place = tl.arange(0, TOPK)
    tl.store(target + place, -1, mask=(place >= length) & (place < topk))


@triton.jit
def take(tile, start, taken, equal, edge, missing, length, table, target, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Writes a tile's selected slots; returns `taken` and `equal`, how many scores were above the edge and at it.

    One scan counts both: those at the edge in the upper half of a word.
    """
    position = start + tl.arange(0, BLOCK)
    inside = position < length
    over = ((tile > edge) & inside).to(tl.int32)
    even = ((tile == edge) & inside).to(tl.int32)
    scan = tl.cumsum(over | (even << 16), 0)
    over_before = taken + (scan & 0xFFFF) - over
    even_before = equal + (scan >> 16) - even
    chosen = (over | (even & (even_before < missing).to(tl.int32))) > 0
    place = over_before + tl.minimum(even_before, missing)
    slot = tl.load(table + position // PAGE, mask=chosen, other=0) * PAGE + position % PAGE
    tl.store(target + place, slot, mask=chosen)
    return taken + tl.sum(over, 0), equal + tl.sum(even, 0)
