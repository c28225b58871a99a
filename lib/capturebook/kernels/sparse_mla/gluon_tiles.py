"""Gluon pieces that both cache formats share: which tiles of the two index lists a program has, and their slots."""

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
