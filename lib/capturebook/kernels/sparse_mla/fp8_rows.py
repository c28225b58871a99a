"""Triton pieces of the fp8 cache layout (see formats.py): where a token lies in its page, and its values."""

import triton
import triton.language as tl


@triton.jit
def page_stride(PAGE: tl.constexpr):
    """Bytes from one page to the next, as formats.page_stride."""
    return (PAGE * 584 + 575) // 576 * 576


@triton.jit
def locate(slots, in_window, WINDOW_PAGE: tl.constexpr, EXTRA_PAGE: tl.constexpr):
    """(row, scales): byte offsets in the cache of [N] slots, int64; those of slot 0 where a slot is negative.

    Tokens a page are powers of two, so that no slot is divided.
    """
    window_bits: tl.constexpr = WINDOW_PAGE.bit_length() - 1
    extra_bits: tl.constexpr = EXTRA_PAGE.bit_length() - 1
    bits = tl.where(in_window, window_bits, extra_bits)
    tokens = tl.where(in_window, WINDOW_PAGE, EXTRA_PAGE)
    stride = tl.where(in_window, page_stride(WINDOW_PAGE), page_stride(EXTRA_PAGE))
    slots = tl.maximum(slots, 0)
    page = (slots >> bits).to(tl.int64) * stride
    token = slots & (tokens - 1)
    return page + token * 576, page + tokens * 576 + token * 8


@triton.jit
def load_scales(cache, scales, valid):
    """The 8 scale bytes of [N] tokens, as one int64 each: single bytes could not be copied asynchronously."""
    return tl.load((cache + scales).to(tl.pointer_type(tl.int64)), mask=valid, other=0)


@triton.jit
def load_raw(cache, row, valid, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """[N, COUNT] bytes of the tokens' rows from byte FIRST on, 0 where not valid."""
    return tl.load(cache + row[:, None] + (FIRST + tl.arange(0, COUNT))[None, :], mask=valid[:, None], other=0)


@triton.jit
def load_rope(cache, row, valid):
    """[N, 64] bf16: the rotary part of the tokens' rows, 0 where not valid."""
    start = (cache + 448).to(tl.pointer_type(tl.bfloat16))
    return tl.load(start + (row >> 1)[:, None] + tl.arange(0, 64)[None, :], mask=valid[:, None], other=0.0)


@triton.jit
def opaque(raw):
    """The same bytes, out of the compiler's sight; for tiles of fewer than 64 heads, which mma.sync multiplies.

    Where Triton sees that an operand of mma.sync began as bytes, it lays it out as if it still were: every tile then
    lies in shared memory twice, once for either matmul, and is read without ldmatrix. With tcgen05 (64 heads, sm_100)
    this would abort the compiler: its pipeliner cannot predicate assembly that is not pure.
    """
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [raw], dtype=tl.uint8, is_pure=False, pack=4)


@triton.jit
def from_e4m3(raw, E4M3: tl.constexpr):
    """fp32 of e4m3 bytes. E4M3: the hardware has the conversion (sm_89 and later).

    To fp32, and from there to bf16: on sm_90 Triton's way to bf16 goes from fp16, one value at a time, by an
    instruction of a quarter of the rate (F2F). Without the hardware: sign, exponent and digits moved to their places in
    fp32 give the value times 2 ** -120, subnormals included.
    """
    if E4M3:
        value = raw.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        wide = raw.to(tl.int32)
        bits = ((wide & 0x80) << 24) | ((wide & 0x7F) << 20)
        value = bits.to(tl.float32, bitcast=True) * 1.329227995784916e36
        value = tl.where((wide & 0x7F) == 0x7F, float("nan"), value)
    return value


@triton.jit
def dequantise(raw, scales, FIRST: tl.constexpr, GROUPS: tl.constexpr, E4M3: tl.constexpr, FP32: tl.constexpr):
    """[N, 64 * GROUPS] values of e4m3 bytes whose first group has scale byte FIRST of `scales` ([N] int64).

    In bf16, exact but at the ends of its range: e4m3 has 4 digits of its 8, and the scale is a power of two. FP32: in
    fp32, for use without tensor cores and for Triton's interpreter, which multiplies bf16 wrongly. Byte 255 makes the
    scale infinite.
    """
    N: tl.constexpr = raw.shape[0]
    exponent = (scales[:, None] >> ((FIRST + tl.arange(0, GROUPS)) * 8).to(tl.int64)[None, :]) & 0xFF
    # a ue8m0 byte is the exponent of fp32 and of bf16 as it stands; but 2 ** -127, byte 0, is a subnormal
    if FP32:
        scale = tl.where(exponent == 0, 0x400000, exponent << 23).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        scale = tl.where(exponent == 0, 0x40, exponent << 7).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    value = tl.reshape(from_e4m3(raw, E4M3).to(scale.dtype), [N, GROUPS, 64])
    return tl.reshape(value * scale[:, :, None], [N, GROUPS * 64])
