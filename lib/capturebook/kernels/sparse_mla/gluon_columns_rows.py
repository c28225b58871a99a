"""Gluon pieces of `gluon_columns.py`: rows from the cache into the lanes that multiply them, in either format.

A warp has groups `w` and `w + 4` of a row's eight groups of 64 columns, halves 0 and 1 below; the lanes of a warp lie 8
rows by 4 times 16 columns. A tile of either half is int32 [N, 4 warps, 4 lanes, 4 words, 2], two bf16 in each.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .gluon_rows import DEQUANTISE, locate


@gluon.jit
def on_warps(LAYOUT: gl.constexpr):
    """[1, 4, 1, 1] int32: the warp's number, of a 4-dimensional layout as those below."""
    number = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))))
    return gl.expand_dims(gl.expand_dims(gl.expand_dims(number, 0), 2), 3)


@gluon.jit
def on_lanes(LAYOUT: gl.constexpr):
    """[1, 1, 4, 1]: which of the four lanes of a row."""
    number = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(0, gl.SliceLayout(3, LAYOUT))))
    return gl.expand_dims(gl.expand_dims(gl.expand_dims(number, 0), 0), 3)


@gluon.jit
def in_lane(COUNT: gl.constexpr, LAYOUT: gl.constexpr):
    """[1, 1, 1, COUNT]: which element of a lane's."""
    number = gl.arange(0, COUNT, layout=gl.SliceLayout(0, gl.SliceLayout(0, gl.SliceLayout(0, LAYOUT))))
    return gl.expand_dims(gl.expand_dims(gl.expand_dims(number, 0), 0), 0)


@gluon.jit
def on_rows(x):
    """[N] as [N, 1, 1, 1]."""
    return gl.expand_dims(gl.expand_dims(gl.expand_dims(x, 1), 2), 3)


@gluon.jit
def fetch_fp8(slots, in_window, caches, WINDOW_PAGE: gl.constexpr, EXTRA_PAGE: gl.constexpr):
    """(first, second, last, scales) of a tile as it lies in the cache, zeros where a slot is negative.

    first and second: 16 bytes a lane of groups 0 to 3 and 4 to 7; of group 7, which is bf16 and takes the fourth warp
    32 bytes a lane, `last` has the second 16.
    """
    WORDS: gl.constexpr = gl.BlockedLayout([1, 1, 1, 4], [8, 1, 4, 1], [1, 4, 1, 1], [3, 2, 1, 0])
    row, scale = locate(slots, in_window, WINDOW_PAGE, EXTRA_PAGE)
    cache = gl.where(in_window, caches[0], caches[1])
    there = on_rows(slots >= 0)
    words = on_rows((cache + row).to(gl.pointer_type(gl.int32)))
    fourth = on_warps(WORDS) == 3
    scales = gl.load((cache + scale).to(gl.pointer_type(gl.int64)), mask=slots >= 0, other=0)
    place = on_warps(WORDS) * 16 + on_lanes(WORDS) * 4
    first = gl.load(words + place + in_lane(4, WORDS), mask=there, other=0)
    rotary = 112 + on_warps(WORDS) * 0 + on_lanes(WORDS) * 8
    second = gl.load(words + gl.where(fourth, rotary, 64 + place) + in_lane(4, WORDS), mask=there, other=0)
    last = gl.load(words + (rotary + 4) + in_lane(4, WORDS), mask=there & fourth, other=0)
    return first, second, last, scales


@gluon.jit
def dequantise(words, scales, HALF: gl.constexpr):
    """A half of `fetch_fp8` as pairs of bf16. A ue8m0 byte is bf16's exponent as it stands, but for 0, a subnormal."""
    WORDS: gl.constexpr = words.type.layout
    warp = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, WORDS))))
    shift = (gl.expand_dims(warp, 0) + HALF * 4) * 8
    exponent = ((gl.expand_dims(scales, 1) >> shift.to(gl.int64)) & 0xFF).to(gl.int32)
    scale = gl.where(exponent == 0, 0x400040, (exponent << 7) | (exponent << 23))
    words, scale = gl.broadcast(words, gl.expand_dims(gl.expand_dims(scale, 2), 3))
    low, high = gl.inline_asm_elementwise(
        DEQUANTISE, "=r,=r,r,r", [words, scale], dtype=(gl.int32, gl.int32), is_pure=True, pack=1
    )
    return gl.join(low, high)


@gluon.jit
def with_rotary(half, second, last):
    """The second half, with the rotary part, which `fetch_fp8` has in `second` and `last`, as its last group."""
    PAIRS: gl.constexpr = half.type.layout
    rotary = gl.permute(gl.join(second, last), [0, 1, 2, 4, 3])
    rotary = gl.convert_layout(gl.reshape(rotary, half.shape), PAIRS, assert_trivial=True)
    warp = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, PAIRS)))))
    warp = gl.expand_dims(gl.expand_dims(gl.expand_dims(gl.expand_dims(warp, 0), 2), 3), 4)
    fourth, half = gl.broadcast(warp == 3, half)
    return gl.where(fourth, rotary, half)


@gluon.jit
def fetch_bf16(slots, in_window, caches):
    """(first, second): both halves of a tile of bf16 rows, zeros where a slot is negative."""
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 1, 1, 8], [8, 1, 4, 1], [1, 4, 1, 1], [3, 2, 1, 0])
    cache = gl.where(in_window, caches[0], caches[1])
    row = cache + gl.maximum(slots, 0).to(gl.int64) * 512
    PAIR_ROW: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, PAIRS)))
    pairs = on_rows(gl.convert_layout(row, PAIR_ROW, assert_trivial=True).to(gl.pointer_type(gl.int32)))
    pairs += on_warps(PAIRS) * 32 + on_lanes(PAIRS) * 8
    pairs += in_lane(8, PAIRS)
    there = on_rows(gl.convert_layout(slots, PAIR_ROW, assert_trivial=True) >= 0)
    return gl.load(pairs, mask=there, other=0), gl.load(pairs + 128, mask=there, other=0)


@gluon.jit
def fetch(slots, in_window, caches, WINDOW_PAGE: gl.constexpr, EXTRA_PAGE: gl.constexpr):
    """A tile as it lies in the cache; WINDOW_PAGE 0: rows of bf16."""
    if WINDOW_PAGE:
        raw = fetch_fp8(slots, in_window, caches, WINDOW_PAGE, EXTRA_PAGE)
    else:
        raw = fetch_bf16(slots, in_window, caches)
    return raw


@gluon.jit
def halves(raw, FP8: gl.constexpr, PAIRS: gl.constexpr):
    """Both halves of what `fetch` gives, as pairs of bf16."""
    SHAPE: gl.constexpr = [raw[0].shape[0], 4, 4, 4, 2]
    if FP8:
        first = dequantise(raw[0], raw[3], 0)
        second = with_rotary(dequantise(raw[1], raw[3], 1), raw[1], raw[2])
    else:
        first = gl.reshape(raw[0], SHAPE)
        second = gl.reshape(raw[1], SHAPE)
    first = gl.convert_layout(first, PAIRS, assert_trivial=True)
    return first, gl.convert_layout(second, PAIRS, assert_trivial=True)
