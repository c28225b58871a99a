"""Gluon pieces of the fp8 cache layout (see formats.py): from slots to bf16 rows in shared memory.

A warp's lanes lie 8 rows by 4 times 16 bytes, so that a load takes one scale's group
of 8 rows, 64 bytes each, and that its dequantised values, 32 bytes a lane, go to shared memory without bank conflicts.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .fp8_rows import locate as tl_locate
from .gluon_tiles import TILE

locate = gluon.jit(tl_locate.fn)

DEQUANTISE = gl.constexpr("""
{
.reg .b16 low, high, a, b, c, d;
.reg .b32 ab, cd;
.reg .f32 fa, fb, fc, fd;
mov.b32 {low, high}, $2;
cvt.rn.f16x2.e4m3x2 ab, low;
cvt.rn.f16x2.e4m3x2 cd, high;
mov.b32 {a, b}, ab;
mov.b32 {c, d}, cd;
cvt.f32.f16 fa, a;
cvt.f32.f16 fb, b;
cvt.f32.f16 fc, c;
cvt.f32.f16 fd, d;
cvt.rn.bf16x2.f32 ab, fb, fa;
cvt.rn.bf16x2.f32 cd, fd, fc;
mul.rn.bf16x2 $0, ab, $3;
mul.rn.bf16x2 $1, cd, $3;
}
""")
"""4 bytes of e4m3 and a pair of equal bf16 scales to 4 bf16. By way of fp32: NaN stays NaN, and any scale will do."""

_PREFETCH = gl.constexpr("""
{
.reg .pred wanted;
setp.ge.s32 wanted, $3, 0;
@wanted prefetch.global.L2 [$1];
@wanted prefetch.global.L2 [$1 + 320];
@wanted prefetch.global.L2 [$2];
mov.b32 $0, 0;
}
""")


@gluon.jit
def row_pointers(slots, in_window, caches, WINDOW_PAGE: gl.constexpr, EXTRA_PAGE: gl.constexpr):
    """(rows, scales): byte pointers of slots, those of slot 0 where a slot is negative. caches: (window, extra)."""
    window_cache, extra_cache = caches
    row, scale = locate(slots, in_window, WINDOW_PAGE, EXTRA_PAGE)
    cache = gl.where(in_window, window_cache, extra_cache)
    return cache + row, cache + scale


@gluon.jit
def prefetch_rows(slots, rows, scales):
    """Has 64 rows and their scales brought into L2: a row's lines by 8 addresses, 80 bytes apart, from 4 lanes."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [8, 4], [gl.num_warps(), 1], [1, 0])
    ROW: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    slots = gl.expand_dims(gl.convert_layout(slots, ROW, assert_trivial=True), 1)
    rows = gl.expand_dims(gl.convert_layout(rows.to(gl.int64), ROW, assert_trivial=True), 1)
    scales = gl.expand_dims(gl.convert_layout(scales.to(gl.int64), ROW, assert_trivial=True), 1)
    rows += gl.expand_dims(gl.arange(0, 4, layout=gl.SliceLayout(0, LAYOUT)), 0) * 80
    slots, rows = gl.broadcast(slots, rows)
    scales, rows = gl.broadcast(scales, rows)
    gl.inline_asm_elementwise(_PREFETCH, "=r,l,l,r", [rows, scales, slots], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def fetch_groups(rows, valid, FIRST: gl.constexpr, COUNT: gl.constexpr, LAYOUT: gl.constexpr):
    """[64, COUNT, 16] int32: 64 * COUNT bytes of each row from byte 64 * FIRST on, 0 where it is not valid."""
    group = gl.arange(FIRST, FIRST + COUNT, layout=gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    word = gl.arange(0, 16, layout=gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    column = gl.expand_dims(gl.expand_dims(group, 0), 2) * 16 + gl.expand_dims(gl.expand_dims(word, 0), 1)
    words = gl.expand_dims(gl.expand_dims(rows.to(gl.pointer_type(gl.int32)), 1), 2)
    return gl.load(words + column, mask=gl.expand_dims(gl.expand_dims(valid, 1), 2), other=0)


@gluon.jit
def store_groups(part, raw, scales, FIRST: gl.constexpr, LAYOUT: gl.constexpr):
    """Dequantises what `fetch_groups` fetched into `part` of a shared tile, [64, 32 * COUNT] words of two bf16.

    scales: [64] int64, the 8 scale bytes of each row. A ue8m0 byte is bf16's exponent as it stands, but for 0, which
    stands for a subnormal.
    """
    COUNT: gl.constexpr = raw.shape[1]
    group = gl.arange(FIRST, FIRST + COUNT, layout=gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    exponent = ((gl.expand_dims(scales, 1) >> gl.expand_dims(group * 8, 0).to(gl.int64)) & 0xFF).to(gl.int32)
    scale = gl.where(exponent == 0, 0x400040, (exponent << 7) | (exponent << 23))
    raw, scale = gl.broadcast(raw, gl.expand_dims(scale, 2))
    low, high = gl.inline_asm_elementwise(
        DEQUANTISE, "=r,=r,r,r", [raw, scale], dtype=(gl.int32, gl.int32), is_pure=True, pack=1
    )
    part.store(gl.reshape(gl.join(low, high), [TILE, COUNT * 32]))
