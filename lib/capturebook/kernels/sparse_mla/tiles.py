"""Triton pieces the kernels share: which tiles of the two index lists a program reads, and how a row ends.

Two ways to deal tiles out. The stock kernels take runs of tiles, counted by the lengths (`split_range`,
`load_indices`): the first index waits for the lengths, a round trip to memory. The tensor-core kernels take every
`splits`-th tile, counted by the widths (`read_slots`, `keep_slots`): indices, lengths and queries are fetched at once.
"""

import triton
import triton.language as tl


@triton.jit
def load_length(lengths, request, width):
    """How many leftmost entries of a request's list of `width` count."""
    return tl.maximum(tl.minimum(tl.load(lengths + request), width), 0)


@triton.jit
def split_range(window_length, extra_length, split, splits, BLOCK_N: tl.constexpr):
    """(first, end, window_tiles): the tiles of BLOCK_N entries that one split reads.

    Tiles of the window list come first, those of the extra list after; no tile holds both. Lengths are device values,
    so the work follows them and not the width of the lists; splits at the end may be empty.
    """
    window_tiles = tl.cdiv(window_length, BLOCK_N)
    tiles = window_tiles + tl.cdiv(extra_length, BLOCK_N)
    per_split = tl.cdiv(tiles, splits)
    first = split * per_split
    return first, tl.minimum(first + per_split, tiles), window_tiles


@triton.jit
def load_indices(tile, window_tiles, window_indices, window_length, extra_indices, extra_length, BLOCK_N: tl.constexpr):
    """[BLOCK_N] int32 slots of one tile, negative where nothing is to be read (padding, or beyond the length).

    `window_indices` and `extra_indices` point at this request's lists. A tile past the last one is all -1.
    """
    in_window = tile < window_tiles
    indices = tl.where(in_window, window_indices, extra_indices)
    length = tl.where(in_window, window_length, extra_length)
    position = tl.where(in_window, tile, tile - window_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    return tl.load(indices + position, mask=position < length, other=-1)


@triton.jit
def read_slots(tile, window_tiles, window_list, window_width, extra_list, extra_width, BLOCK_N: tl.constexpr):
    """[BLOCK_N] int32 slots of one tile, as they stand in the lists; -1 beyond a list's width.

    Tiles of the window list come first, `window_tiles` of them whatever its length, those of the extra list after.
    """
    in_window = tile < window_tiles
    position = tl.where(in_window, tile, tile - window_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    indices = tl.where(in_window, window_list, extra_list)
    return tl.load(indices + position, mask=position < tl.where(in_window, window_width, extra_width), other=-1)


@triton.jit
def keep_slots(slots, tile, window_tiles, window_length, extra_length, BLOCK_N: tl.constexpr):
    """The slots of one tile that lie within the lengths, -1 for the others: their rows are not read."""
    in_window = tile < window_tiles
    position = tl.where(in_window, tile, tile - window_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    return tl.where(position < tl.where(in_window, window_length, extra_length), slots, -1)


@triton.jit
def finish(top, total, sink_log2, FINAL: tl.constexpr):
    """(factor for the accumulator, lse) at the end of a softmax kept in base 2.

    The softmax is a running maximum `top` of the scores s and the sum `total` of exp2(s - top).
    FINAL puts the sink into the denominator; a partial result leaves it to the combine. lse is in natural log without
    the sink. An empty row has top -inf and total 0: factor 0 and lse -inf, whatever the sink.
    """
    base = tl.where(top == -float("inf"), 0.0, top)  # -inf - -inf would be NaN
    denominator = total
    if FINAL:
        denominator += tl.exp2(sink_log2 - base)
    inverse = tl.where(denominator == 0.0, 0.0, 1.0 / denominator)
    lse = tl.where(total == 0.0, -float("inf"), (base + tl.log2(total)) * 0.6931471805599453)
    return inverse, lse
