"""Where a row's k-th largest score lies: a range of values, cut into sixteenths until few scores are left in one."""

import triton
import triton.language as tl

BY_VALUE = tl.constexpr(6)
"""Passes that cut a range of values, before those that cut the range of their bits, of which 11 end it. Scores that are
normal, or nearly, take one."""

SPREAD = tl.constexpr(0.25)
"""The first range is so many standard deviations to each side of where a normal distribution has its k-th largest. Of
normal keys and queries, 1800 to 8000 keys, it lay within 0.06 of that, and a sixteenth has 20 to 50 scores."""


@triton.jit
def positions(start, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """[WIDE, BLOCK / WIDE]: positions from `start` on, neighbours in neighbouring threads, a row in one thread.

    Told that no address is a multiple, the compiler reads them one by one. Else it reads four at a time, and what comes
    of them goes through shared memory before slots can be written one by one.
    """
    at = start + tl.arange(0, WIDE)[:, None] + tl.arange(0, BLOCK // WIDE)[None, :] * WIDE
    return tl.multiple_of(at, [1, 1])


@triton.jit
def load_scores(line, start, length, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK scores from `start`; -inf, which no score is, behind the length."""
    at = positions(start, WIDE, BLOCK)
    return tl.load(line + at, mask=at < length, other=float("-inf"))


@triton.jit
def add_two(a, b, c, d):
    return a + c, b + d


@triton.jit
def sums(tile):
    """[WIDE] sums of scores, and of their squares."""
    seen = tl.where(tile == float("-inf"), 0.0, tile)
    return tl.sum(seen, 1), tl.sum(seen * seen, 1)


@triton.jit
def sums_of_row(head, line, length, LONG: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """`sums` of a row; here and below `head` is all of it, or with LONG it is read from memory."""
    if LONG:
        one, two = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32)
        for start in tl.range(0, length, BLOCK):
            more, squares = sums(load_scores(line, start, length, WIDE, BLOCK))
            one += more
            two += squares
    else:
        one, two = sums(head)
    return tl.reduce((one, two), 0, add_two)


@triton.jit
def first_range(head, line, length, topk, LONG: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(highest value, width) of the range to cut first, from mean and deviation; nothing is lost if it is not there."""
    one, two = sums_of_row(head, line, length, LONG, WIDE, BLOCK)
    mean = one / length
    deviation = tl.sqrt(tl.maximum(two / length - mean * mean, 0.0))
    # The normal quantile after Hastings (Abramowitz and Stegun 26.2.22), off by 0.003 at most.
    share = topk / length.to(tl.float32)
    t = tl.sqrt(-2.0 * tl.log(tl.minimum(share, 1.0 - share)))
    quantile = t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + t * 0.04481))
    quantile = tl.where(share < 0.5, quantile, -quantile)
    return mean + (quantile + SPREAD) * deviation, 2.0 * SPREAD * deviation


@triton.jit
def part_of(tile, cut):
    """0 to 15, rising as scores fall: in which part of a range each is; what lies outside counts to its ends.

    cut: (by value?, highest value, parts a unit of value, or by bits: least rank, bits of a rank that are not looked
    at). Ranks are 0 for the largest float, and order as floats do; -0.0 has the rank of 0.0. By bits part 0 is what
    is above the range, and 9 what is below: 1 to 8 are its eighths.
    """
    by_value, high, scale, first, shift = cut
    if by_value:
        # At 2 ** 23 a float's last bits are its integer part. One rounding, the same wherever this is inlined: what
        # is counted is what is taken.
        place = tl.fma(high - tile, scale, 8388607.5)
        place = tl.minimum(tl.maximum(place, 8388608.0), 8388623.0)
        part = place.to(tl.int32, bitcast=True) & 15
    else:
        bits = (tile + 0.0).to(tl.int32, bitcast=True)
        rank = (0x7FFFFFFF - (bits ^ ((bits >> 31) & 0x7FFFFFFF))).to(tl.uint32, bitcast=True)
        part = tl.where(rank < first, 0, tl.minimum((rank - first) >> shift, 8).to(tl.int32) + 1)
    return part


@triton.jit
def in_bytes(part, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(even, odd) [WIDE] int64: how many of a thread's scores are in parts 0, 2, 4 ... and in 1, 3, 5 ..., a byte each.

    Counted in 4 bits each of one word, 8 scores at a time, then in bytes.
    """
    EIGHT: tl.constexpr = min(8, BLOCK // WIDE)
    ones = tl.full(part.shape, 1, tl.int64) << (part * 4).to(tl.int64)
    fours = tl.sum(tl.reshape(ones, [WIDE, BLOCK // WIDE // EIGHT, EIGHT]), 2)
    return tl.sum(fours & 0x0F0F0F0F0F0F0F0F, 1), tl.sum((fours >> 4) & 0x0F0F0F0F0F0F0F0F, 1)


@triton.jit
def histogram(tile, cut, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """[WIDE, 16] int32: how many of a thread's scores are in each part."""
    even, odd = in_bytes(part_of(tile, cut), WIDE, BLOCK)
    place = tl.arange(0, 16)[None, :]
    found = tl.where((place & 1) == 1, odd[:, None], even[:, None]) >> (8 * (place >> 1)).to(tl.int64)
    return (found & 0xFF).to(tl.int32)


@triton.jit
def histogram_of_row(line, length, cut, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """`histogram` of a row of any length, read from memory."""
    counts = tl.zeros([WIDE, 16], tl.int32)
    for start in tl.range(0, length, BLOCK):
        counts += histogram(load_scores(line, start, length, WIDE, BLOCK), cut, WIDE, BLOCK)
    return counts


@triton.jit
def counts_up_to(part, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """[WIDE, 8] int32: how many of a thread's scores are in parts up to j, in the upper half in parts 8 up to 8 + j.

    Counted as in `in_bytes`. A row in registers has fewer than 2 ** 16 scores, so halves of a word hold its sums.
    """
    even, odd = in_bytes(part, WIDE, BLOCK)
    # A product with ones sums bytes up to each; parts alternate between the two words.
    even_low, even_high = even.to(tl.int32) * 0x01010101, (even >> 32).to(tl.int32) * 0x01010101
    odd_low, odd_high = odd.to(tl.int32) * 0x01010101, (odd >> 32).to(tl.int32) * 0x01010101
    place = tl.arange(0, 8)[None, :]
    shift = 8 * (place >> 1)
    low = tl.where((place & 1) == 1, (even_low + odd_low)[:, None], (even_low + (odd_low << 8))[:, None])
    high = tl.where((place & 1) == 1, (even_high + odd_high)[:, None], (even_high + (odd_high << 8))[:, None])
    return ((low >> shift) & 0xFF) | (((high >> shift) & 0xFF) << 16)


@triton.jit
def one_of(part, above, upto, other_part, other_above, other_upto):
    return part + other_part, tl.maximum(above, other_above), tl.minimum(upto, other_upto)


@triton.jit
def finite(high, width):
    """Whether a range can be cut by value: not too narrow, not too wide for a float."""
    return (width > 1e-30) & (width < 1e30) & (tl.abs(high) < 1e30)


@triton.jit
def search(head, line, length, topk, ENOUGH: tl.constexpr, LONG: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """(cut, found, part, above, upto): `above` <= topk scores are in a part before this one, `upto` >= topk up to its
    end. Either above is topk; or at most ENOUGH are in the part; or all in it are equal.

    found: the part that each score of `head` is in; with LONG nothing.
    """
    by_value, high, width, scale = length <= topk, 0.0, 1.0, 16.0
    part, above, upto = tl.full([], 16, tl.int32), length, length
    found = tl.zeros([1 if LONG else WIDE, 1 if LONG else BLOCK // WIDE], tl.int32)
    searching = length > topk
    if searching:
        high, width = first_range(head, line, length, topk, LONG, WIDE, BLOCK)
        by_value = finite(high, width)
        scale = 16.0 / width
    first, shift = tl.full([], 0, tl.uint32), tl.full([], 29, tl.uint32)
    step = 0
    while searching:
        cut = (by_value, high, scale, first, shift)
        if LONG:
            upon = tl.cumsum(tl.sum(histogram_of_row(line, length, cut, WIDE, BLOCK), 0), 0)  # in all parts up to each
            few = upon <= topk
            parts, below, beyond = few.to(tl.int32), tl.where(few, upon, 0), tl.where(few, 2147483647, upon)
        else:
            found = part_of(head, cut)
            both = tl.sum(counts_up_to(found, WIDE, BLOCK), 0)
            low = both & 0xFFFF
            high_parts = (both >> 16) + tl.max(low, 0)
            few, more = low <= topk, high_parts <= topk
            parts = few.to(tl.int32) + more.to(tl.int32)
            below = tl.maximum(tl.where(few, low, 0), tl.where(more, high_parts, 0))
            beyond = tl.minimum(tl.where(few, 2147483647, low), tl.where(more, 2147483647, high_parts))
        part, above, upto = tl.reduce((parts, below, beyond), 0, one_of)
        upto = tl.minimum(upto, length)  # the last part has what stands for no score, too
        ended = (by_value == 0) & (shift == 0)
        searching = (above < topk) & (upto - above > ENOUGH) & (ended == 0)
        if searching:
            if by_value:
                # Into the part, and a little beyond for roundings; out of the range if it is at one of its ends.
                each = width * 0.0625
                high = tl.where(part == 0, high + 8.0 * width, high - (part - 0.02) * each)
                width = tl.where(part == 0, 8.02 * width, tl.where(part == 15, 8.0 * width, 1.04 * each))
                step += 1
                by_value = (step < BY_VALUE) & finite(high, width)
                scale = 16.0 / tl.maximum(width, 1e-30)
            else:
                first += (part - 1).to(tl.uint32) << shift
                shift = tl.where(shift > 3, shift - 3, 0).to(tl.uint32)
    return (by_value, high, scale, first, shift), found, part, above, upto
