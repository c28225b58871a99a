"""Top-k of each request's scores as cache slots, bounded by device lengths."""

import triton
import triton.language as tl

from ..glue.tiles import wait_for_previous
from ..sparse_mla.tiles import load_length
from .threshold import load_scores, part_of, positions, search

CONFIGS = [
    triton.Config({"SHORT": short, "BLOCK": block, "WIDE": 32 * warps}, num_warps=warps, num_stages=1)
    for short, block, warps in ((2048, 8192, 8), (2048, 8192, 16), (2048, 4096, 8))
]
"""Rows of up to SHORT scores, and of up to BLOCK, stay in registers; longer ones are read again in each pass, BLOCK at
a time, from the caches. One launch has rows of all kinds, so all are in one kernel. WIDE: threads."""


@triton.jit
def count_up(tile, start, length, cut, part, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(flags, before, total): which scores lie before a part and, in the upper half of a word, which in it.

    before: how many of both come before each score of the tile, within a thread and over the threads; total: in all.
    """
    at = positions(start, WIDE, BLOCK)
    found = part_of(tile, cut)
    over = ((found < part) & (at < length)).to(tl.int32)
    even = ((found == part) & (at < length)).to(tl.int32)
    flags = over | (even << 16)
    own = tl.sum(flags, 1)
    before = (tl.cumsum(own, 0) - own)[:, None] + tl.cumsum(flags, 1) - flags
    return flags, before, tl.sum(own, 0)


@triton.jit
def one_by_one(start, at):
    """Addresses from `start` on, told that neighbouring threads have neighbours, as `positions` has them.

    That they are contiguous is not so. The compiler takes from it which dimension threads lie along, and no more, since
    no address is a multiple; without it Triton 3.9 takes the other, and what is written goes through shared memory.
    """
    return tl.max_contiguous(tl.multiple_of(start + at, [1, 1]), [2, 1])


@triton.jit
def slots_of(start, length, table, PAGE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The slots of BLOCK positions; something behind the length."""
    at = positions(start, WIDE, BLOCK)
    return tl.load(one_by_one(table, at // PAGE), mask=at < length, other=0) * PAGE + at % PAGE


@triton.jit
def write_even(
    tile, start, flags, before, equal, target, ENOUGH: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """Puts scores that are still to be compared where the result will be, their positions behind them.

    equal: how many there are before this tile.
    """
    place = one_by_one(target, equal + (before >> 16))
    tl.store(place, tile.to(tl.int32, bitcast=True), mask=(flags >> 16) > 0)
    tl.store(place + ENOUGH, positions(start, WIDE, BLOCK), mask=(flags >> 16) > 0)


@triton.jit
def rank_even(target, table, above, missing, count, PAGE: tl.constexpr, ENOUGH: tl.constexpr):
    """Of `count` scores in the result's memory, writes the slots of the `missing` largest behind the first `above`."""
    tl.debug_barrier()  # other threads wrote them
    mine = tl.arange(0, ENOUGH)
    score = tl.load(target + mine, mask=mine < count, other=0).to(tl.float32, bitcast=True)[:, None]
    rival = tl.load(target + mine, mask=mine < count, other=-8388608).to(tl.float32, bitcast=True)[None, :]
    at = tl.load(target + ENOUGH + mine, mask=mine < count, other=0)
    slots = tl.load(table + at // PAGE, mask=mine < count, other=0) * PAGE + at % PAGE
    better = (rival > score) | ((rival == score) & (mine[None, :] < mine[:, None]))
    rank = tl.sum(better.to(tl.int32), 1)
    tl.debug_barrier()  # all have read
    tl.store(target + above + rank, slots, mask=(mine < count) & (rank < missing))


@triton.jit
def write_chosen(slots, flags, before, taken, equal, missing, target):
    """Writes what lies before the part and the first `missing` in it, in the row's order.

    taken, equal: how many of both there are before this tile.
    """
    even_at = equal + (before >> 16)
    chosen = ((flags & 1) > 0) | (((flags >> 16) > 0) & (even_at < missing))
    tl.store(one_by_one(target, taken + (before & 0xFFFF) + tl.minimum(even_at, missing)), slots, mask=chosen)


@triton.jit
def ones_in(word):
    """How many bits of a uint32 are set."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    return (((((word + (word >> 4)) & 0x0F0F0F0F) * 0x01010101) & 0xFFFFFFFF) >> 24).to(tl.int32)


@triton.jit
def lowest(word):
    """Which bit of a uint32 is the lowest that is set; something if none is."""
    return ((word & (0 - word).to(tl.uint32)).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def bits(flags, E: tl.constexpr):
    """[WIDE] uint32 of flags [WIDE, E]: bit e of a thread's word is its flag e."""
    return tl.sum(tl.where(flags, tl.full([], 1, tl.int32) << tl.arange(0, E)[None, :], 0), 1).to(
        tl.uint32, bitcast=True
    )


@triton.jit
def most_of(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(b, d)


@triton.jit
def select_row(
    line, table, target, length, topk, PAGE: tl.constexpr, ENOUGH: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """The slots of a row of up to BLOCK scores, which stay in registers; at most 32 of them in a thread."""
    E: tl.constexpr = BLOCK // WIDE
    head = load_scores(line, 0, length, WIDE, BLOCK)
    cut, found, part, above, upto = search(head, line, length, topk, ENOUGH, False, WIDE, BLOCK)
    there = positions(0, WIDE, BLOCK) < length
    over = bits((found < part) & there, E)
    even = bits((found == part) & there, E)
    own = ones_in(over) | (ones_in(even) << 16)
    before = tl.cumsum(own, 0) - own
    most_over, most_even = tl.reduce((own & 0xFFFF, own >> 16), 0, most_of)
    missing = topk - above
    mine = tl.arange(0, WIDE)
    place = before >> 16
    if missing > 0:
        compare = (ENOUGH > 0) & (upto - above <= ENOUGH)
        for _turn in tl.range(0, most_even):
            at = lowest(even) * WIDE + mine
            live = even != 0
            if compare:
                score = tl.load(line + at, mask=live, other=0.0)
                tl.store(target + place, score.to(tl.int32, bitcast=True), mask=live)
                tl.store(target + ENOUGH + place, at, mask=live)
            else:
                live = live & (place < missing)
                slots = tl.load(table + at // PAGE, mask=live, other=0) * PAGE + at % PAGE
                tl.store(target + above + place, slots, mask=live)
            even = even & (even - 1)
            place += 1
        if ENOUGH > 0:
            if compare:
                rank_even(target, table, above, missing, upto - above, PAGE, ENOUGH)
    place = before & 0xFFFF
    for _turn in tl.range(0, most_over):
        at = lowest(over) * WIDE + mine
        live = over != 0
        slots = tl.load(table + at // PAGE, mask=live, other=0) * PAGE + at % PAGE
        tl.store(target + place, slots, mask=live)
        over = over & (over - 1)
        place += 1


@triton.jit
def select_long_row(
    line, table, target, length, topk, PAGE: tl.constexpr, ENOUGH: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """The slots of a row of any length, read once more for each step."""
    cut, nothing, part, above, upto = search(0.0, line, length, topk, ENOUGH, True, WIDE, BLOCK)
    missing = topk - above
    if ENOUGH > 0:
        if (missing > 0) & (upto - above <= ENOUGH):
            equal = 0
            for start in tl.range(0, length, BLOCK):
                tile = load_scores(line, start, length, WIDE, BLOCK)
                flags, before, total = count_up(tile, start, length, cut, part, WIDE, BLOCK)
                write_even(tile, start, flags, before, equal, target, ENOUGH, WIDE, BLOCK)
                equal += total >> 16
            rank_even(target, table, above, missing, upto - above, PAGE, ENOUGH)
            missing = 0
    taken, even = 0, 0
    for start in tl.range(0, length, BLOCK):
        tile = load_scores(line, start, length, WIDE, BLOCK)
        flags, before, total = count_up(tile, start, length, cut, part, WIDE, BLOCK)
        write_chosen(slots_of(start, length, table, PAGE, WIDE, BLOCK), flags, before, taken, even, missing, target)
        taken += total & 0xFFFF
        even += total >> 16


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
    ENOUGH: tl.constexpr,  # so many scores are compared with each other, not searched; at most topk / 2
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
        select_row(line, table, target, length, topk, PAGE, ENOUGH, WIDE, SHORT)
    elif length <= BLOCK:
        select_row(line, table, target, length, topk, PAGE, ENOUGH, WIDE, BLOCK)
    else:
        select_long_row(line, table, target, length, topk, PAGE, ENOUGH, WIDE, BLOCK)
    place = tl.arange(0, TOPK)
    tl.store(target + place, -1, mask=(place >= length) & (place < topk))
