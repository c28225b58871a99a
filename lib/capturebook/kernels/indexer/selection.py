"""Top-k of each request's scores as cache slots, bounded by device lengths: a search for the k-th largest score."""

import triton
import triton.language as tl

from ..sparse_mla.tiles import load_length

CONFIGS = [
    triton.Config({"SHORT": short, "BLOCK": block}, num_warps=warps, num_stages=1)
    for short, block, warps in ((2048, 8192, 8), (2048, 8192, 16), (2048, 4096, 8), (2048, 4096, 4), (1024, 4096, 8))
]
"""Scores that stay in registers: SHORT of a row no longer than that, else BLOCK. A longer row's others are read again
in each pass, from the caches. One launch has rows of both kinds, so both are in one kernel."""

GUESSES = tl.constexpr(12)
"""Passes that interpolate before plain bisection, which ends in 32: normal scores take 9 passes, 13 at most."""


@triton.jit
def key_of(value):
    """int32 that compare like fp32 values: a float's bits compare like its size, a negative one's are flipped.

    Adding zero makes -0.0 the 0.0 that it equals.
    """
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The inverse of `key_of`."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def positions(start, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """[BLOCK / PAGE, PAGE]: positions from `start` on, a page in a row."""
    return start + tl.arange(0, BLOCK // PAGE)[:, None] * PAGE + tl.arange(0, PAGE)[None, :]


@triton.jit
def load_keys(line, start, length, beyond, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK scores from `start` as int32 that compare like them; `beyond` behind the length."""
    position = positions(start, PAGE, BLOCK)
    return tl.where(position < length, key_of(tl.load(line + position, mask=position < length, other=0.0)), beyond)


@triton.jit
def count(head, line, length, threshold, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """How many scores of a row are at or above the threshold; `head` holds the first BLOCK of them."""
    found = (head >= threshold).to(tl.int32)
    for start in tl.range(BLOCK, length, BLOCK):
        found += (load_keys(line, start, length, -2147483648, PAGE, BLOCK) >= threshold).to(tl.int32)
    return tl.sum(found)


@triton.jit
def extremes(line, length, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """(smallest, largest) score of a row, as int64 keys."""
    small = load_keys(line, 0, length, 2147483647, PAGE, BLOCK)
    large = load_keys(line, 0, length, -2147483648, PAGE, BLOCK)
    for start in tl.range(BLOCK, length, BLOCK):
        small = tl.minimum(small, load_keys(line, start, length, 2147483647, PAGE, BLOCK))
        large = tl.maximum(large, load_keys(line, start, length, -2147483648, PAGE, BLOCK))
    return tl.min(small).to(tl.int64), tl.max(large).to(tl.int64)


@triton.jit
def search(head, line, length, topk, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """(edge, missing): all keys above the edge are taken, and of those equal to it as many as are missing.

    Between two thresholds, one with more than topk scores at or above it and one with `above` <= topk, the next is
    interpolated in the logarithm of the counts; an end that stays twice in a row counts half (the Illinois rule).
    """
    low, highest = extremes(line, length, PAGE, BLOCK)
    # A row of up to topk keys takes no pass: all it has are equal to the lowest, or above it.
    high = tl.where(length > topk, highest, low) + 1
    below = length
    above = tl.full([], 0, tl.int32)
    step = 0
    moved = 0  # 1: the lower threshold moved last; -1: the upper
    low_weight = 1.0
    high_weight = 1.0
    while (above < topk) & (high - low > 1):
        to_low = tl.log2(below.to(tl.float32) / topk) * low_weight
        to_high = tl.log2(topk / tl.maximum(above.to(tl.float32), 0.5)) * high_weight
        left, right = value_of(low.to(tl.int32)), value_of(high.to(tl.int32))
        guess = key_of(left + (right - left) * (to_low / (to_low + to_high))).to(tl.int64)
        middle = tl.where(step < GUESSES, guess, low + (high - low) // 2)
        middle = tl.minimum(tl.maximum(middle, low + 1), high - 1)
        found = count(head, line, length, middle.to(tl.int32), PAGE, BLOCK)
        more = found > topk
        low = tl.where(more, middle, low)
        below = tl.where(more, found, below)
        high = tl.where(more, high, middle)
        above = tl.where(more, above, found)
        high_weight = tl.where(more & (moved == 1), high_weight * 0.5, 1.0)
        low_weight = tl.where((found <= topk) & (moved == -1), low_weight * 0.5, 1.0)
        moved = tl.where(more, 1, -1)
        step += 1
    return (high - 1).to(tl.int32), topk - above


@triton.jit
def take(tile, start, taken, equal, edge, missing, length, table, target, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Writes a tile's selected slots; returns `taken` and `equal`, how many scores were above the edge and at it.

    Both are counted at once, those at the edge in the upper half of a word: within a page, which stays in a warp, and
    over the pages.
    """
    position = positions(start, PAGE, BLOCK)
    over = ((tile > edge) & (position < length)).to(tl.int32)
    even = ((tile == edge) & (position < length)).to(tl.int32)
    both = over | (even << 16)
    pages = tl.sum(both, 1)
    ends = tl.cumsum(pages, 0)
    before = (ends - pages)[:, None] + tl.cumsum(both, 1) - both
    over_before = taken + (before & 0xFFFF)
    even_before = equal + (before >> 16)
    chosen = (over | (even & (even_before < missing).to(tl.int32))) > 0
    column = start // PAGE + tl.arange(0, BLOCK // PAGE)
    page = tl.load(table + column, mask=column * PAGE < length, other=0)
    slot = page[:, None] * PAGE + tl.arange(0, PAGE)[None, :]
    tl.store(target + over_before + tl.minimum(even_before, missing), slot, mask=chosen)
    total = tl.sum(pages, 0)
    return taken + (total & 0xFFFF), equal + (total >> 16)


@triton.jit
def select_row(line, table, target, length, topk, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """The slots of one row, in order of position; of equal scores at the edge the first are taken."""
    head = load_keys(line, 0, length, -2147483648, PAGE, BLOCK)
    edge, missing = search(head, line, length, topk, PAGE, BLOCK)
    taken, equal = take(head, 0, 0, 0, edge, missing, length, table, target, PAGE, BLOCK)
    for start in tl.range(BLOCK, length, BLOCK):
        tile = load_keys(line, start, length, -2147483648, PAGE, BLOCK)
        taken, equal = take(tile, start, taken, equal, edge, missing, length, table, target, PAGE, BLOCK)


@triton.autotune(configs=CONFIGS, key=["batch_bucket"])
@triton.jit(do_not_specialize=["batch_bucket"])
def select_kernel(
    scores,  # [B, table_width * PAGE] fp32; what lies beyond the length is not read
    page_table,  # [B, table_width] int32
    lengths,  # [B] int32
    slots,  # [B, topk] int32, -1 behind them
    topk,
    table_width,
    batch_bucket,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,  # a power of two >= topk
    SHORT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per request."""
    row = tl.program_id(0).to(tl.int64)
    length = load_length(lengths, row, table_width * PAGE)
    line = scores + row * table_width * PAGE
    table = page_table + row * table_width
    target = slots + row * topk
    if length <= SHORT:
        select_row(line, table, target, length, topk, PAGE, SHORT)
    else:
        select_row(line, table, target, length, topk, PAGE, BLOCK)
    place = tl.arange(0, TOPK)
    tl.store(target + place, -1, mask=(place >= length) & (place < topk))
