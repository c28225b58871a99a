"""Gluon pieces that both cache formats share: which tiles of the two index lists a program has, and their slots.

Two ways to deal tiles out, as in tiles.py: `split_tiles` and `read_slots` give a program a run of them, counted by the
lengths; `named` and `kept` every `splits`-th, counted by the widths, so that indices need not wait for lengths.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .tiles import load_length as tl_load_length

TILE = gl.constexpr(64)
"""Entries of a tile, all of one list."""

load_length = gluon.jit(tl_load_length.fn)


@gluon.jit
def split_tiles(window_indices, window_lengths, window_width, extra_indices, extra_lengths, extra_width, splits):
    """(lists, first, count): this program's request's lists as `read_slots` takes them, and its run of tiles.

    Tiles of the window list come first. Lengths are device values: the work follows them and not the lists' widths.
    """
    request = gl.program_id(2).to(gl.int64)
    window_length = load_length(window_lengths, request, window_width)
    extra_length = load_length(extra_lengths, request, extra_width)
    window_tiles = gl.cdiv(window_length, TILE)
    all_tiles = window_tiles + gl.cdiv(extra_length, TILE)
    per_split = gl.cdiv(all_tiles, splits)
    first = gl.minimum(gl.program_id(0) * per_split, all_tiles)
    window_list = window_indices + request * window_width
    extra_list = extra_indices + request * extra_width
    lists = (window_list, window_length, extra_list, extra_length, window_tiles)
    return lists, first, gl.minimum(per_split, all_tiles - first)


@gluon.jit
def read_slots(tile, end, lists, LAYOUT: gl.constexpr):
    """[64] int32 slots of a tile, negative where nothing is to be read: padding, beyond a length, tile `end` and on.

    lists: (window list, its length, extra list, its length, tiles of the window list) of a request; tiles of the
    window list come first.
    """
    window_list, window_length, extra_list, extra_length, window_tiles = lists
    in_window = tile < window_tiles
    indices = gl.where(in_window, window_list, extra_list)
    length = gl.where(in_window, window_length, extra_length)
    position = gl.where(in_window, tile, tile - window_tiles) * TILE + gl.arange(0, TILE, layout=LAYOUT)
    return gl.load(indices + position, mask=(position < length) & (tile < end), other=-1)


@gluon.jit
def named(tile, window_tiles, widths, entry, N: gl.constexpr):
    """Slots of entries `entry` of a tile of N, as they stand in the lists; -1 beyond a list's width.

    widths: (window list, its width, extra list, its width) of a request; tiles of the window list come first,
    `window_tiles` of them whatever its length.
    """
    window_list, window_width, extra_list, extra_width = widths
    in_window = tile < window_tiles
    position = gl.where(in_window, tile, tile - window_tiles) * N + entry
    indices = gl.where(in_window, window_list, extra_list)
    return gl.load(indices + position, mask=position < gl.where(in_window, window_width, extra_width), other=-1)


@gluon.jit
def kept(slots, tile, window_tiles, lengths, entry, N: gl.constexpr):
    """Those of the slots that lie within the lengths (window, extra), -1 for the others: their rows are not read."""
    in_window = tile < window_tiles
    position = gl.where(in_window, tile, tile - window_tiles) * N + entry
    return gl.where(position < gl.where(in_window, lengths[0], lengths[1]), slots, -1)
