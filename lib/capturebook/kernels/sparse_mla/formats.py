"""The layouts of V4's latent cache: bf16 rows, and the fp8 pages that it is served with. (V3.2's: formats_v32.py.)

A page of the fp8 layout, of P tokens, is bytes [stride(P)]:

    [0, 576 P)        rows: 448 e4m3 values, then 64 bf16 values (the rotary part), 576 bytes a token
    [576 P, 584 P)    scales: 7 ue8m0 bytes, one for each 64 e4m3 values, and one that is not used, 8 bytes a token
    [584 P, stride)   not used: the stride is 584 P rounded up to a multiple of 576

Token t of page p has its row at p * stride + 576 t and its scales at p * stride + 576 P + 8 t. A value is
e4m3 * 2 ** (ue8m0 - 127). The layout is FlashMLA's "MODEL1" and sglang's "v4".
"""

import torch
from torch import Tensor

from . import formats_v32

FORMATS = ("bf16", "fp8")
"""Of DeepSeek-V4: a row of 512 values is both key and value."""

CACHES = (*FORMATS, "v32")
"""All that `decode` reads; V3.2's keys are 576 wide, of which the first 512 are the value."""

NOPE, ROPE, GROUP = 448, 64, 64
"""Values of a token in e4m3, values in bf16, and how many e4m3 values share a scale."""

ROW_BYTES, SCALE_BYTES = NOPE + 2 * ROPE, 8
TOKEN_BYTES = ROW_BYTES + SCALE_BYTES
LARGEST = 448.0
"""The largest e4m3 value."""

LEAST_SCALE = 1e-4
"""Least scale before it is rounded up to a power of two, as the model's own quantiser has it."""

CHUNK = 2**16
"""Tokens that the quantiser takes at a time: its fp32 copies would be four times the cache."""


def format_of(cache: Tensor) -> str:
    """Which of CACHES a cache has, by its dtype and width: no page of fp8 rows is as short as a token of V3.2."""
    if cache.dtype != torch.uint8:
        return "bf16"
    return "v32" if cache.dim() and cache.shape[-1] == formats_v32.TOKEN_BYTES else "fp8"


def key_width(cache: str) -> int:
    """Values of a key, and of a query, that a cache of this format holds."""
    return formats_v32.KEY if cache == "v32" else NOPE + ROPE


def page_stride(tokens: int) -> int:
    """Bytes from one page of `tokens` tokens to the next."""
    return -(-tokens * TOKEN_BYTES // ROW_BYTES) * ROW_BYTES


def page_tokens(stride: int) -> int:
    """Tokens of a page from its stride, which the padding, shorter than a token, leaves no doubt about.

    Raises ValueError for a stride that no page of 1, 2, 4, ... tokens has.
    """
    tokens = stride // TOKEN_BYTES
    if tokens < 1 or tokens & (tokens - 1) or page_stride(tokens) != stride:
        sizes = ", ".join(f"{page_stride(size)} ({size})" for size in (2, 64, 256))
        raise ValueError(f"{stride} bytes a page; allowed: those of 1, 2, 4, ... tokens, such as {sizes}")
    return tokens


def quantise(rows: Tensor, page: int) -> Tensor:
    """fp8 cache [pages, page_stride(page)] uint8 of finite rows [slots, 512], fp32 or bf16; `page` divides slots.

    A group's scale is 2 ** ceil(log2(max(amax / 448, 1e-4))), so the scale bytes lie between 114 and 247. Bytes that
    are not used are 0. Raises ValueError.
    """
    slots = rows.shape[0]
    if page < 1 or slots % page:
        raise ValueError(f"rows: {slots}; allowed: a multiple of the page, {page}")
    cache = torch.zeros(slots // page, page_stride(page), dtype=torch.uint8, device=rows.device)
    for first in range(0, len(cache), max(CHUNK // page, 1)):
        pages = cache[first : first + max(CHUNK // page, 1)]
        _quantise_into(pages, rows[first * page : (first + len(pages)) * page].float(), page)
    return cache


def _quantise_into(cache: Tensor, rows: Tensor, page: int) -> None:
    pages = len(cache)
    groups = rows[:, :NOPE].reshape(-1, NOPE // GROUP, GROUP)
    least = (groups.abs().amax(-1) / LARGEST).clamp_min(LEAST_SCALE)
    # frexp is exact where log2 is not: least = mantissa * 2 ** exponent, mantissa in [0.5, 1)
    mantissa, exponent = torch.frexp(least)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    values = (groups * _power_of_two(-exponent)[:, :, None].float()).to(torch.float8_e4m3fn)
    data = cache[:, : page * ROW_BYTES].unflatten(1, (page, ROW_BYTES))
    data[:, :, :NOPE] = values.view(torch.uint8).view(pages, page, NOPE)
    rope = rows[:, NOPE:].to(torch.bfloat16).contiguous()
    data[:, :, NOPE:] = rope.view(torch.uint8).view(pages, page, 2 * ROPE)
    scales = cache[:, page * ROW_BYTES : page * TOKEN_BYTES].unflatten(1, (page, SCALE_BYTES))
    scales[:, :, : NOPE // GROUP] = (exponent + 127).to(torch.uint8).view(pages, page, -1)


def dequantise(cache: Tensor, slots: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Rows [*slots.shape, 512] of an fp8 cache [pages, stride] at `slots` (int), with their values as they are stored.

    Every value is exact in float64; in bf16 too, but for those beyond its range and the smallest (below 2 ** -126 not
    all of e4m3's digits are left). Scale byte 255 is NaN.
    """
    page, stride = page_tokens(cache.shape[1]), cache.shape[1]
    slots = slots.long()
    start, token = slots // page * stride, slots % page
    flat = cache.view(-1)
    byte = torch.arange(ROW_BYTES, device=cache.device)
    row = flat[(start + token * ROW_BYTES)[..., None] + byte]
    scale_at = start + page * ROW_BYTES + token * SCALE_BYTES
    exponent = flat[scale_at[..., None] + byte[: NOPE // GROUP]].int()
    scale = torch.where(exponent == 255, torch.nan, _power_of_two(exponent - 127))
    wide = torch.promote_types(dtype, torch.float32)
    nope = row[..., :NOPE].contiguous().view(torch.float8_e4m3fn).to(wide)
    nope = nope.unflatten(-1, (NOPE // GROUP, GROUP)) * scale.to(wide)[..., None]
    rope = row[..., NOPE:].contiguous().view(torch.bfloat16)
    return torch.cat((nope.flatten(-2).to(dtype), rope.to(dtype)), dim=-1)


def rows_at(cache: Tensor, slots: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Keys [*slots.shape, 512] ([.., 576] of "v32") of a cache at `slots` (int, all of them in the cache).

    dtype: by default the cache's own, bf16 for those in fp8.
    """
    if cache.dtype == torch.uint8:
        own = dequantise if format_of(cache) == "fp8" else formats_v32.dequantise
        return own(cache, slots, dtype or torch.bfloat16)
    rows = cache[slots.long()]
    return rows.to(dtype) if dtype else rows


def _power_of_two(exponent: Tensor) -> Tensor:
    """2 ** exponent in float64 from its bits: pow and exp2 need not be exact on a GPU."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)
