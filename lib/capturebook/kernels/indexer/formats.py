"""The two layouts of the indexer's keys: bf16, and the fp8 pages that DeepSeek-V4 is served with.

A page of the fp8 layout is bytes [8448]: 64 rows of 128 e4m3 values, and behind them the 64 rows' scales in fp32. It is
packed by page, not by row. A value is e4m3 * scale. The layout is that of DeepGEMM's paged logits and of sglang.
"""

import torch
from torch import Tensor

FORMATS = ("bf16", "fp8")

HEAD_DIM, PAGE = 128, 64
"""Values of a key, and keys a page of the cache, as servers lay V4 out."""

KEY_BYTES = {"bf16": 2 * HEAD_DIM, "fp8": HEAD_DIM + 4}
PAGE_BYTES = PAGE * KEY_BYTES["fp8"]
LARGEST = 448.0
"""The largest e4m3 value."""


def format_of(keys: Tensor) -> str:
    """Which of FORMATS the keys have, by their dtype: fp8 pages are bytes."""
    return "fp8" if keys.dtype == torch.uint8 else "bf16"


def quantise(keys: Tensor) -> Tensor:
    """fp8 pages [pages, 8448] uint8 of keys [pages, 64, 128] (fp32 or bf16); a row's scale is its amax / 448."""
    rows = keys.float()
    scale = (rows.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(1e-12)
    values = (rows / scale).to(torch.float8_e4m3fn).view(torch.uint8).flatten(1)
    return torch.cat((values, scale.flatten(1).view(torch.uint8)), dim=1)


def values_of(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Keys [pages, page, D] of either format as values of `dtype` (fp32 or float64)."""
    if format_of(keys) == "bf16":
        return keys.to(dtype)
    values = keys[:, : PAGE * HEAD_DIM].view(torch.float8_e4m3fn).to(dtype).unflatten(1, (PAGE, HEAD_DIM))
    return values * keys[:, PAGE * HEAD_DIM :].contiguous().view(torch.float32).to(dtype)[:, :, None]
