"""`compress`: a compressor of DeepSeek-V4 for one token a request, as the torch operator `capturebook::compress`."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from ..glue.check import BF16, FP32, INT32, check, rotation, stored
from ..glue.launch_rows import cache_arguments, options
from ..indexer import formats as key_formats
from .compress import compress_kernel
from .reference import compress_reference

BLOCK_TOKENS, WARPS = 32, 8
"""Tokens that are pooled at a time, and warps of a program; not tuned."""


def compress(
    projected: Tensor,
    ring: Tensor,
    bias: Tensor,
    gain: Tensor,
    table: Tensor,
    positions: Tensor,
    cache: Tensor,
    slots: Tensor,
    keys: bool = False,
) -> None:
    """A token's values and gates into the ring of its request and, where it ends a window, the entry into the cache.

    projected [B, 2 * series * D] bf16, values and behind them gates; ring [B, series * ratio, 2 * series * D] bf16, a
    token at its position modulo the ring's length; bias [ratio, series * D] fp32, added to the gates; gain [D] fp32 of
    the norm. series is 2 where windows overlap (an entry is of its own window, by the second series, and of the one
    before, by the first, which a context's first window does not have), else 1. An entry is the softmax over all tokens
    of the ring, value by value; normed, rotated to its window's first position, stored at slots [B] int32, which are in
    the cache whether or not a window ends. table [P, 64] fp32 and positions [B] int32 as in `glue.q_norm_rope`.
    D 512: cache in a format of `sparse_mla`, [slots, 512] bf16 or [pages, stride] uint8. keys: D 128, the indexer's
    [pages, 64, 128] bf16 or [pages, 8448] uint8. One launch, which reads the ring only where a window ends; on a CPU
    torch ops. Raises ValueError, one line, naming the argument.
    """
    batch, ratio = len(projected), len(bias)
    d = key_formats.HEAD_DIM if keys else 512
    series = ring.shape[1] // ratio if ring.dim() == 3 and ratio else 0
    if series not in (1, 2) or ratio & (ratio - 1):
        allowed = f"[batch, 1 or 2 times bias's rows (a power of two, given {ratio}), values and gates]"
        raise ValueError(f"ring: shape {tuple(ring.shape)}; allowed: {allowed}")
    width = series * d
    into = _keys(cache) if keys else stored(batch, cache, slots)
    check(
        "projected",
        projected,
        ("projected", projected, BF16, (batch, 2 * width)),
        ("ring", ring, BF16, (batch, series * ratio, 2 * width)),
        ("bias", bias, FP32, (ratio, width)),
        ("gain", gain, FP32, (d,)),
        ("slots", slots, INT32, (batch,)),
        *rotation(batch, table, positions),
        *into,
    )
    torch.ops.capturebook.compress(projected, ring, bias, gain, table, positions, cache, slots, keys)


def _keys(cache: Tensor) -> tuple[tuple, ...]:
    """What `check` wants of the indexer's keys."""
    if cache.dtype == torch.uint8:
        return (("cache", cache, torch.uint8, (None, key_formats.PAGE_BYTES)),)
    return (("cache", cache, BF16, (None, key_formats.PAGE, key_formats.HEAD_DIM)),)


@triton_op("capturebook::compress", mutates_args=("ring", "cache"))
def _compress(
    projected: Tensor,
    ring: Tensor,
    bias: Tensor,
    gain: Tensor,
    table: Tensor,
    positions: Tensor,
    cache: Tensor,
    slots: Tensor,
    keys: bool,
) -> None:
    tensors = (projected, ring, bias, gain, table, positions, cache, slots)
    if projected.device.type == "cpu":
        compress_reference(*tensors, keys=keys)
        return
    kernel = wrap_triton(compress_kernel)
    kernel[(len(projected),)](**arguments(tensors, keys), **options(kernel, projected), num_warps=WARPS)


@_compress.register_fake
def _(projected, ring, bias, gain, table, positions, cache, slots, keys):
    return None


def arguments(tensors: tuple[Tensor, ...], keys: bool) -> dict:
    """Arguments of `compress_kernel` by name, without those of `glue.launch_rows.options`."""
    names = ("projected", "ring", "bias", "gain", "table", "positions", "cache", "slots")
    given = dict(zip(names, tensors, strict=True))
    ratio, d = len(given["bias"]), len(given["gain"])
    tokens = given["ring"].shape[1]
    pages = {"PAGE": 1, "STRIDE": 1, "FP8": given["cache"].dtype == torch.uint8}
    if not keys:
        pages = cache_arguments(given["cache"])
    constants = {"RATIO": ratio, "SERIES": tokens // ratio, "D": d, "BLOCK_T": min(BLOCK_TOKENS, tokens), "KEYS": keys}
    return given | constants | pages
