"""The fp8 cache layout, byte by byte, against its definition written out in plain Python: no torch arithmetic here."""

import bisect
import math
import random
import struct

import pytest
import torch

from capturebook.kernels.sparse_mla import formats

PAGES = {256: 149_760, 64: 37_440, 2: 1_728, 1: 1_152}
"""Tokens a page and bytes from page to page, as FlashMLA and sglang lay V4 out."""


def e4m3(byte: int) -> float:
    """OCP 8-bit floating point, E4M3: sign, 4 bits of exponent with bias 7, 3 bits; no infinities, S1111111 is NaN."""
    sign, exponent, digits = byte >> 7, byte >> 3 & 15, byte & 7
    if exponent == 15 and digits == 7:
        return math.nan
    value = math.ldexp(digits, -9) if exponent == 0 else math.ldexp(8 + digits, exponent - 10)
    return -value if sign else value


POSITIVE = [e4m3(code) for code in range(127)]
"""In the order of their bytes they grow."""


def nearest_e4m3(value: float) -> int:
    """The byte of the nearest value, of two equally near the even one; what is too large becomes the largest."""
    above = bisect.bisect_left(POSITIVE, abs(value), hi=126)
    near = [code for code in (above - 1, above) if code >= 0]
    best = min((abs(POSITIVE[code] - abs(value)), code & 1, code) for code in near)[2]
    return best | (0x80 if math.copysign(1.0, value) < 0 else 0)


def bf16(low: int, high: int) -> float:
    return struct.unpack("<f", bytes((0, 0, low, high)))[0]


def bf16_bytes(value: float) -> bytes:
    packed = struct.pack("<f", value)
    assert packed[:2] == b"\0\0", "the test's values are bf16 already"
    return packed[2:]


def page_bytes(rows: list[list[float]]) -> bytes:
    """One page of the layout from its tokens' 512 values."""
    data, scales = b"", b""
    for row in rows:
        for group in range(7):
            values = row[64 * group : 64 * group + 64]
            largest = max(abs(v) for v in values)
            exponent = -13  # 2 ** -13 is the least power of two above 1e-4
            while largest > math.ldexp(448.0, exponent):
                exponent += 1
            data += bytes(nearest_e4m3(math.ldexp(v, -exponent)) for v in values)
            scales += bytes([exponent + 127])
        data += b"".join(bf16_bytes(v) for v in row[448:])
        scales += b"\0"
    page = data + scales
    return page + b"\0" * (-len(page) % 576)


def values_of(page: bytes, tokens: int, token: int) -> list[float]:
    """The 512 values of one token of a page."""
    row, scales = page[576 * token :][:576], page[576 * tokens + 8 * token :][:8]
    factor = [math.nan if byte == 255 else math.ldexp(1.0, byte - 127) for byte in scales]
    nope = [e4m3(row[i]) * factor[i // 64] for i in range(448)]
    return nope + [bf16(row[448 + 2 * i], row[449 + 2 * i]) for i in range(64)]


def same(got: torch.Tensor, want: list[float]) -> bool:
    """Equal in every value, NaN where NaN is wanted."""
    return all(g == w or (math.isnan(g) and math.isnan(w)) for g, w in zip(got.tolist(), want, strict=True))


@pytest.mark.parametrize("tokens", PAGES)
def test_strides_are_those_of_the_layout_and_tell_the_page(tokens):
    assert formats.page_stride(tokens) == PAGES[tokens]
    assert formats.page_tokens(PAGES[tokens]) == tokens


def test_every_power_of_two_is_told_from_its_stride():
    assert all(formats.page_tokens(formats.page_stride(1 << bits)) == 1 << bits for bits in range(16))


@pytest.mark.parametrize("stride", [0, 584, 1_168, 149_504, 149_760 + 576, 4 * 576])
def test_other_strides_are_refused_in_one_line(stride):
    with pytest.raises(ValueError, match=rf"^{stride} bytes a page; allowed: .*149760 \(256\)$"):
        formats.page_tokens(stride)


@pytest.mark.parametrize("tokens, pages", [(256, 1), (64, 2), (2, 3)])
def test_quantiser_byte_by_byte(tokens, pages):
    """Rows of every size that bf16 has, from below the least scale to its end; some groups all zero, or one value."""
    generator = torch.Generator().manual_seed(tokens)
    rows = torch.randn(tokens * pages, 512, generator=generator)
    size = torch.randint(-30, 120, (tokens * pages, 8, 1), generator=generator).float()
    rows = (rows.view(-1, 8, 64) * torch.exp2(size)).view(-1, 512).bfloat16()
    rows[0, :64], rows[1, 64:128] = 0.0, 0.0
    rows[1, 70] = 448.0  # exactly the largest value at scale 1
    rows[0, 128], rows[0, 192:256] = torch.finfo(torch.bfloat16).max, -1e-30
    cache = formats.quantise(rows, tokens)
    assert cache.dtype == torch.uint8 and cache.shape == (pages, PAGES[tokens])
    listed = rows.float().tolist()
    for page in range(pages):
        assert bytes(cache[page].tolist()) == page_bytes(listed[page * tokens : (page + 1) * tokens])


def test_quantiser_takes_more_tokens_than_its_chunk(monkeypatch):
    monkeypatch.setattr(formats, "CHUNK", 8)
    rows = torch.randn(20, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    cut = formats.quantise(rows, 4)
    monkeypatch.setattr(formats, "CHUNK", 2**16)
    assert torch.equal(cut, formats.quantise(rows, 4))
    with pytest.raises(ValueError, match="^rows: 20; allowed: a multiple of the page, 8$"):
        formats.quantise(rows, 8)


@pytest.mark.parametrize("tokens, pages", [(256, 2), (64, 3), (2, 5)])
def test_dequantiser_byte_by_byte(tokens, pages):
    """Any bytes at all: every e4m3 code, NaN too, and every scale from 0 to 255."""
    cache = bytearray(random.Random(tokens).randbytes(pages * PAGES[tokens]))
    cache[0:256] = bytes(range(256))
    cache[576 * tokens : 576 * tokens + 4] = bytes((127, 0, 254, 255))
    held = torch.frombuffer(cache, dtype=torch.uint8).view(pages, -1)
    slots = [0, 1, tokens - 1, tokens, 2 * tokens - 1, pages * tokens - 1]
    got = formats.dequantise(held, torch.tensor(slots))
    narrow = formats.dequantise(held, torch.tensor(slots), torch.bfloat16)
    for row, small, slot in zip(got, narrow, slots):
        want = values_of(bytes(held[slot // tokens].tolist()), tokens, slot % tokens)
        assert same(row, want)
        fits = [2**-126 <= abs(w) < 2**128 or w == 0 or math.isnan(w) for w in want]
        kept = [i for i in range(512) if fits[i]]
        assert len(kept) > 300 and same(small[kept].double(), [want[i] for i in kept])


def test_slots_keep_their_shape():
    cache = formats.quantise(torch.randn(8, 512), 2)
    assert formats.dequantise(cache, torch.tensor([[0, 7, 3]])).shape == (1, 3, 512)
    assert formats.dequantise(cache, torch.empty(2, 0, dtype=torch.int32)).shape == (2, 0, 512)


def test_quantised_rows_are_near():
    """e4m3 rounds to 3 digits after the first: 1/16 of a value, if it is not far below its group's largest."""
    rows = torch.randn(64, 512, generator=torch.Generator().manual_seed(3)).bfloat16()
    back = formats.dequantise(formats.quantise(rows, 64), torch.arange(64))
    assert torch.equal(back[:, 448:], rows[:, 448:].double())
    difference = (back - rows.double())[:, :448].abs()
    assert (difference <= rows[:, :448].double().abs() / 16 + 2**-9 * 2**-6).all()
    assert difference.max() > 0
