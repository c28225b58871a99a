"""Rows into caches in torch ops: fp8 pages or plain rows, latents or the indexer's keys; no host synchronisation."""

import torch
from torch import Tensor

from ..indexer import formats as key_formats
from ..sparse_mla import formats


def row_parts(cache: Tensor) -> tuple[Tensor, Tensor]:
    """Views of fp8 pages: rows [pages, tokens, 576] and scales [pages, tokens, 8], uint8."""
    tokens = formats.page_tokens(cache.shape[1])
    rows = cache[:, : tokens * formats.ROW_BYTES].unflatten(1, (tokens, formats.ROW_BYTES))
    scales = cache[:, tokens * formats.ROW_BYTES : tokens * formats.TOKEN_BYTES]
    return rows, scales.unflatten(1, (tokens, formats.SCALE_BYTES))


def key_parts(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the indexer's fp8 pages: values [pages, 64, 128] uint8 and scales [pages, 64] fp32."""
    size = key_formats.PAGE * key_formats.HEAD_DIM
    values = keys[:, :size].unflatten(1, (key_formats.PAGE, key_formats.HEAD_DIM))
    return values, keys[:, size:].view(torch.float32)


def store(cache: Tensor, slots: Tensor, rows: Tensor, wanted: Tensor | None = None) -> None:
    """Writes rows [B, D] to slots [B] of a cache of latent rows, in its format; where `wanted` [B] is not, nothing.

    Slots are distinct, those that are not wanted, too: what is there is written back, for no shape may follow data.
    """
    if cache.dtype != torch.uint8:
        _put(cache, (slots,), rows.to(cache.dtype), wanted)
        return
    packed = formats.quantise(rows, page=1)
    parts = row_parts(cache)
    at = (slots // parts[0].shape[1], slots % parts[0].shape[1])
    _put(parts[0], at, packed[:, : formats.ROW_BYTES], wanted)
    _put(parts[1], at, packed[:, formats.ROW_BYTES : formats.TOKEN_BYTES], wanted)


def store_keys(keys: Tensor, slots: Tensor, rows: Tensor, wanted: Tensor) -> None:
    """As `store`, for the indexer's keys [pages, 64, D] or fp8 pages; slot = page * 64 + place."""
    at = (slots // key_formats.PAGE, slots % key_formats.PAGE)
    if keys.dtype != torch.uint8:
        _put(keys, at, rows.to(keys.dtype), wanted)
        return
    scale = (rows.float().abs().amax(-1, keepdim=True) / key_formats.LARGEST).clamp_min(1e-12)
    values, scales = key_parts(keys)
    _put(values, at, (rows.float() / scale).to(torch.float8_e4m3fn).view(torch.uint8), wanted)
    _put(scales, at, scale[:, 0], wanted)


def _put(target: Tensor, at: tuple[Tensor, ...], rows: Tensor, wanted: Tensor | None) -> None:
    if wanted is not None:
        rows = torch.where(wanted.view(-1, *([1] * (rows.dim() - 1))), rows, target[at])
    target.index_put_(at, rows)
