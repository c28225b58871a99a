"""Top-k of each request's scores as cache slots, bounded by device lengths: a search for the k-th largest score."""

import triton
import triton.language as tl

from ..glue.tiles import wait_for_previous
from ..sparse_mla.tiles import load_length

CONFIGS = [
    triton.Config({"SHORT": short, "BLOCK": block, "WIDE": 32 * warps}, num_warps=warps, num_stages=1)
    for short, block, warps in ((2048, 8192, 8), (2048, 8192, 16), (2048, 4096, 8), (2048, 4096, 4), (1024, 4096, 8))
]
"""Scores that stay in registers: SHORT of a row no longer than that, else BLOCK. A longer row's others are read again
in each pass, from the caches. One launch has rows of both kinds, so both are in one kernel. WIDE: threads."""

BY_VALUE = tl.constexpr(10)
"""Passes that cut the range of scores into fifths before those that cut the range of their bits, of which 14 end it.
Normal scores take 6 passes, 10 at most."""

LOWEST = tl.constexpr(-2147483648)


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
def positions(start, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """[WIDE, BLOCK / WIDE]: positions from `start` on, neighbours in neighbouring threads, a row in one thread.

    Told that there are no neighbours, the compiler reads them one by one. Else it reads four at a time, and what comes
    of them goes through shared memory before slots can be written one by one.
    """
    at = start + tl.arange(0, WIDE)[:, None] + tl.arange(0, BLOCK // WIDE)[None, :] * WIDE
    return tl.max_contiguous(at, [1, 1])


@triton.jit
def load_keys(line, start, length, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK scores from `start` as int32 that compare like them; LOWEST, which no score has, behind the length."""
    at = positions(start, WIDE, BLOCK)
    return tl.where(at < length, key_of(tl.load(line + at, mask=at < length, other=0.0)), LOWEST)


@triton.jit
def smaller_larger(small, large, other_small, other_large):
    return tl.minimum(small, other_small), tl.maximum(large, other_large)


@triton.jit
def extremes(head, line, length, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(smallest, largest) score of a row; `head` holds the first BLOCK of them."""
    small, large = tl.where(head == LOWEST, 2147483647, head), head
    for start in tl.range(BLOCK, length, BLOCK):
        tile = load_keys(line, start, length, WIDE, BLOCK)
        small = tl.minimum(small, tl.where(tile == LOWEST, 2147483647, tile))
        large = tl.maximum(large, tile)
    return tl.reduce((tl.min(small, 1), tl.max(large, 1)), 0, smaller_larger)


@triton.jit
def add_four(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def two_counts(tile, first, second):
    """Which scores are at or above two thresholds, in the halves of a word."""
    return (tile >= first).to(tl.int32) | ((tile >= second).to(tl.int32) << 16)


@triton.jit
def count(head, line, length, t0, t1, t2, t3, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """How many scores of a row are at or above each of four thresholds: one exchange between threads for all."""
    low, high = two_counts(head, t0, t1), two_counts(head, t2, t3)
    for start in tl.range(BLOCK, length, BLOCK):
        tile = load_keys(line, start, length, WIDE, BLOCK)
        low += two_counts(tile, t0, t1)
        high += two_counts(tile, t2, t3)
    low, high = tl.sum(low, 1), tl.sum(high, 1)  # what a thread has fits into half a word; a row's need not
    return tl.reduce((low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16), 0, add_four)


@triton.jit
def threshold(low, high, step, part: tl.constexpr):
    """A key strictly between two, `part` fifths of the way: by the scores' values, in later passes by their keys."""
    left, right = value_of(low.to(tl.int32)), value_of(high.to(tl.int32))
    by_value = key_of(left + (right - left) * (part * 0.2)).to(tl.int64)
    found = tl.where(step < BY_VALUE, by_value, low + (high - low) * part // 5)
    return tl.minimum(tl.maximum(found, low + 1), high - 1).to(tl.int32)


@triton.jit
def search(head, line, length, topk, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(edge, missing): all keys above the edge are taken, and of those equal to it as many as are missing.

    Between two thresholds, one with more than topk scores at or above it and one with `above` <= topk, four more are
    tried in each pass.
    """
    least, most = extremes(head, line, length, WIDE, BLOCK)
    # A row of up to topk keys takes no pass: all it has are equal to the lowest, or above it.
    low = least.to(tl.int64)
    high = tl.where(length > topk, most.to(tl.int64), low) + 1
    above = tl.full([], 0, tl.int32)
    step = 0
    while (above < topk) & (high - low > 1):
        t0, t1 = threshold(low, high, step, 1), threshold(low, high, step, 2)
        t2, t3 = threshold(low, high, step, 3), threshold(low, high, step, 4)
        n0, n1, n2, n3 = count(head, line, length, t0, t1, t2, t3, WIDE, BLOCK)
        # counts fall as thresholds rise: the last with too many, and the first without
        low = tl.where(n0 > topk, t0.to(tl.int64), low)
        low = tl.where(n1 > topk, t1.to(tl.int64), low)
        low = tl.where(n2 > topk, t2.to(tl.int64), low)
        low = tl.where(n3 > topk, t3.to(tl.int64), low)
        high, above = tl.where(n3 <= topk, t3.to(tl.int64), high), tl.where(n3 <= topk, n3, above)
        high, above = tl.where(n2 <= topk, t2.to(tl.int64), high), tl.where(n2 <= topk, n2, above)
        high, above = tl.where(n1 <= topk, t1.to(tl.int64), high), tl.where(n1 <= topk, n1, above)
        high, above = tl.where(n0 <= topk, t0.to(tl.int64), high), tl.where(n0 <= topk, n0, above)
        step += 1
    return (high - 1).to(tl.int32), topk - above


@triton.jit
def take(
    tile,
    start,
    taken,
    equal,
    edge,
    missing,
    length,
    table,
    target,
    PAGE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Writes a tile's selected slots, thread by thread; returns `taken` and `equal`: scores above the edge and at it.

    Both are counted at once, those at the edge in the upper half of a word: within a thread, and over the threads.
    """
    at = positions(start, WIDE, BLOCK)
    page = tl.load(table + at // PAGE, mask=at < length, other=0)
    over = ((tile > edge) & (at < length)).to(tl.int32)
    even = ((tile == edge) & (at < length)).to(tl.int32)
    both = over | (even << 16)
    own = tl.sum(both, 1)
    before = (tl.cumsum(own, 0) - own)[:, None] + tl.cumsum(both, 1) - both
    over_before = taken + (before & 0xFFFF)
    even_before = equal + (before >> 16)
    chosen = (over | (even & (even_before < missing).to(tl.int32))) > 0
    tl.store(target + over_before + tl.minimum(even_before, missing), page * PAGE + at % PAGE, mask=chosen)
    total = tl.sum(own, 0)
    return taken + (total & 0xFFFF), equal + (total >> 16)


@triton.jit
def select_row(line, table, target, length, topk, PAGE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The slots of one row."""
    head = load_keys(line, 0, length, WIDE, BLOCK)
    edge, missing = search(head, line, length, topk, WIDE, BLOCK)
    taken, equal = take(head, 0, 0, 0, edge, missing, length, table, target, PAGE, WIDE, BLOCK)
    for start in tl.range(BLOCK, length, BLOCK):
        tile = load_keys(line, start, length, WIDE, BLOCK)
        taken, equal = take(tile, start, taken, equal, edge, missing, length, table, target, PAGE, WIDE, BLOCK)


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
    PDL: tl.constexpr,
    SHORT: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program per request."""
    row = tl.program_id(0).to(tl.int64)
    wait_for_previous(PDL)
    length = load_length(lengths, row, table_width * PAGE)
    line = scores + row * table_width * PAGE
    table = page_table + row * table_width
    target = slots + row * topk
    if length <= SHORT:
        select_row(line, table, target, length, topk, PAGE, WIDE, SHORT)
    else:
        select_row(line, table, target, length, topk, PAGE, WIDE, BLOCK)
    place = tl.arange(0, TOPK)
    tl.store(target + place, -1, mask=(place >= length) & (place < topk))
