"""Checks of arguments, shared by the glue's operators: one line that names the argument."""

import torch
from torch import Tensor

from ..sparse_mla.formats import page_tokens
from .reference_rows import HEAD, ROPE

BF16, FP32, INT32 = torch.bfloat16, torch.float32, torch.int32


def check(first: str, like: Tensor, *wanted: tuple) -> None:
    """Each of `wanted` is (name, tensor, dtype, shape), None in a shape for any size; all on the device of `like`.

    first: the name of `like`, said where a device differs. Raises ValueError.
    """
    for name, tensor, dtype, shape in wanted:
        if tensor.dtype != dtype:
            raise ValueError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
        if tensor.dim() != len(shape) or any(want not in (None, have) for have, want in zip(tensor.shape, shape)):
            sizes = ", ".join("any" if want is None else str(want) for want in shape)
            raise ValueError(f"{name}: shape {tuple(tensor.shape)}; allowed: [{sizes}]")
        if tensor.device != like.device:
            raise ValueError(f"{name}: on {tensor.device}; allowed: {first}'s device, {like.device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: strides {tensor.stride()}; allowed: contiguous")


def check_groups(name: str, x: Tensor, parts: int = 1) -> None:
    """x is [rows, D], D a multiple of `parts` times 128."""
    if x.dim() != 2 or not x.shape[1] or x.shape[1] % (128 * parts):
        raise ValueError(f"{name}: shape {tuple(x.shape)}; allowed: [rows, a multiple of {128 * parts}]")


def check_heads(name: str, x: Tensor, width: int) -> None:
    """x is [B, H, width], H at least 1."""
    if x.dim() != 3 or x.shape[2] != width or not x.shape[1]:
        raise ValueError(f"{name}: shape {tuple(x.shape)}; allowed: [batch, heads, {width}]")


def rotation(batch: int, table: Tensor, positions: Tensor) -> tuple[tuple, ...]:
    """What `check` wants of a table and of positions in it."""
    return ("table", table, FP32, (None, ROPE)), ("positions", positions, INT32, (batch,))


def stored(batch: int, cache: Tensor, slots: Tensor) -> tuple[tuple, ...]:
    """What `check` wants of a cache and of slots in it. Raises ValueError for a page that is none."""
    if cache.dtype != torch.uint8:
        return ("cache", cache, BF16, (None, HEAD)), ("slots", slots, INT32, (batch,))
    if cache.dim() != 2:
        raise ValueError(f"cache: shape {tuple(cache.shape)}; allowed: [pages, bytes a page]")
    try:
        page_tokens(cache.shape[1])
    except ValueError as error:
        raise ValueError(f"cache: {error}") from None
    return ("cache", cache, torch.uint8, (None, cache.shape[1])), ("slots", slots, INT32, (batch,))
