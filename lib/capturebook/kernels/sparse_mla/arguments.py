"""What `decode` takes: its kernels, the cache formats that they read, shapes and dtypes of its arguments."""

import torch
from torch import Tensor

from . import formats_v32
from .formats import format_of, key_width, page_tokens
from .launch import HEAD_DIM

KERNELS = ("mma", "simt")
"""Those with an autotuner, which may be live."""

PATHS = (*KERNELS, "gluon", "auto")
"""What `decode` takes as its kernel."""


def reads(kernel: str, cache: str) -> bool:
    """Whether one of PATHS has a kernel for a cache of this format: V3.2's is read by "mma" alone, and so by "auto"."""
    return cache != "v32" or kernel in ("mma", "auto")


def check_reads(kernel: str, cache: str) -> None:
    """ValueError, one line, where `reads` says no."""
    if not reads(kernel, cache):
        allowed = ", ".join(name for name in PATHS if reads(name, cache))
        raise ValueError(f"kernel: {kernel!r} on a {cache} cache; allowed: {allowed}")


def check(
    kernel: str,
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
) -> str:
    """The format of the caches. Raises ValueError, one line, naming the argument of `decode` that it cannot take."""
    if kernel not in PATHS:
        raise ValueError(f"kernel: {kernel!r}; allowed: {', '.join(PATHS)}")
    cache = format_of(window_cache)
    key = key_width(cache)
    if q.dim() != 3 or q.shape[2] != key:
        raise ValueError(f"q: shape {tuple(q.shape)}; allowed: [batch, heads, {key}] with a {cache} cache")
    batch, heads = q.shape[0], q.shape[1]
    bf16, i32 = torch.bfloat16, torch.int32
    kind = bf16 if cache == "bf16" else torch.uint8
    width = {"bf16": HEAD_DIM, "fp8": None, "v32": formats_v32.TOKEN_BYTES}[cache]
    for name, tensor, dtype, shape in (
        ("q", q, bf16, (batch, heads, key)),
        ("window_cache", window_cache, kind, (None, width)),
        ("window_indices", window_indices, i32, (batch, None)),
        ("window_lengths", window_lengths, i32, (batch,)),
        ("extra_cache", extra_cache, kind, (None, width)),
        ("extra_indices", extra_indices, i32, (batch, None)),
        ("extra_lengths", extra_lengths, i32, (batch,)),
        ("sink", sink, torch.float32, (heads,)),
    ):
        if tensor.dtype != dtype:
            raise ValueError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
        if tensor.dim() != len(shape) or any(
            want is not None and have != want for have, want in zip(tensor.shape, shape, strict=True)
        ):
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            raise ValueError(f"{name}: shape {tuple(tensor.shape)}; allowed: [{wanted}]")
        if tensor.device != q.device:
            raise ValueError(f"{name}: on {tensor.device}; allowed: q's device, {q.device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: strides {tensor.stride()}; allowed: contiguous")
    if cache == "fp8":
        _check_pages("window_cache", window_cache)
        _check_pages("extra_cache", extra_cache)
    check_reads(kernel, cache)
    if kernel == "gluon" and heads % 64:
        raise ValueError(f"kernel: 'gluon' with {heads} heads; allowed: multiples of 64")
    return cache


def _check_pages(name: str, cache: Tensor) -> None:
    """ValueError unless the width is that of fp8 pages and they start where 16 bytes can be copied at a time."""
    try:
        page_tokens(cache.shape[1])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    # Dynamo breaks the graph at storage_offset; what it compiles copies inputs that are less aligned than those it saw.
    if not torch.compiler.is_compiling() and cache.storage_offset() % 16:
        raise ValueError(f"{name}: {cache.storage_offset()} bytes into its storage; allowed: a multiple of 16")
