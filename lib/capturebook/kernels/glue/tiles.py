"""Triton pieces that the glue's kernels share: rotation of a head's end, power-of-two scales, conversion to e4m3."""

import triton
import triton.language as tl


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Before the first access to memory that an earlier launch of the stream reads or writes.

    PDL: this launch and the next may start before the one in front of each has ended (sm_90 and later); what must not
    overlap waits here, and all that is launched behind is let in now.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def place_of(column):
    """Where a token's row of 32 keeps a column of mHC's projection.

    0 to 7: the weights for before and after the sublayer; 8: column 24, the sum of squares; 16 to 31: the matrix, a
    row of it in a thread of those that read it.
    """
    return tl.where(column < 8, column, tl.where(column < 24, column + 8, column - 16))


@triton.jit
def rotate(tile, table, position, INVERSE: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, ROPE: tl.constexpr):
    """Heads [ROWS, D] fp32 with their last ROPE values, pairs side by side, turned by the angles of one position.

    table [positions, ROPE] fp32: cosines of a position's ROPE / 2 angles, and their sines behind them.
    """
    pair = tl.arange(0, D // 2) - (D - ROPE) // 2
    line = table + position.to(tl.int64) * ROPE
    cos = tl.load(line + pair, mask=pair >= 0, other=1.0)[None, :]
    sin = tl.load(line + ROPE // 2 + pair, mask=pair >= 0, other=0.0)[None, :]
    if INVERSE:
        sin = -sin
    even, odd = tl.split(tl.reshape(tile, [ROWS, D // 2, 2]))
    return tl.reshape(tl.join(even * cos - odd * sin, odd * cos + even * sin), [ROWS, D])


@triton.jit
def scale_exponents(groups, LEAST: tl.constexpr):
    """[G] int32 biased exponents of the least powers of two s with amax <= 448 s, for groups [G, N] fp32.

    amax is at least LEAST. 448 is 1.75 * 2 ** 8: an amax with more than 1.75 before its exponent carries into it.
    """
    amax = tl.maximum(tl.max(tl.abs(groups), 1), LEAST)
    return ((amax.to(tl.int32, bitcast=True) + 0x1FFFFF) >> 23) - 8


@triton.jit
def power_of_two(exponent):
    """fp32 of a biased exponent, 1 to 254."""
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def to_e4m3(value, E4M3: tl.constexpr):
    """Bytes of fp32 values of up to 448 in size, rounded to nearest even. E4M3: the hardware has the conversion.

    Without it, 20 digits are rounded away and the exponent's bias goes from 127 to 7; below 2 ** -6 the digits are
    what an addition leaves of a value where one unit of fp32 is 2 ** -9, the step of e4m3 there.
    """
    if E4M3:
        return value.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    bits = value.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    small = (tl.abs(value) + 16384.0).to(tl.int32, bitcast=True) & 0xF
    return (tl.where(size < (121 << 23), small, normal) | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def quantise_groups(groups, E4M3: tl.constexpr):
    """(e4m3 bytes [G, N], scales [G] fp32) of groups [G, N] fp32, as `reference_rows.quantise_reference` has them."""
    exponent = scale_exponents(groups, 1e-4)
    return to_e4m3(groups * power_of_two(254 - exponent)[:, None], E4M3), power_of_two(exponent)


@triton.jit
def sum_of_squares(tile):
    return tl.sum(tl.sum(tile * tile, 1), 0)


@triton.jit
def store_groups(tile, values, scales, row, group, rows, D: tl.constexpr, FP8: tl.constexpr, E4M3: tl.constexpr):
    """Groups [G, 128] of one row: in fp8 with their scales, or as `values` has them; those from D / 128 on are none."""
    at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    there = group < D // 128
    if FP8:
        fp8, powers = quantise_groups(tile, E4M3)
        tl.store(values + row * D + at, fp8, mask=there[:, None])
        tl.store(scales + group * rows + row, powers, mask=there)
    else:
        tl.store(values + row * D + at, tile.to(values.dtype.element_ty), mask=there[:, None])
