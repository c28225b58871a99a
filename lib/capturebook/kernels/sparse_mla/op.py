"""`decode`: sparse MLA decode of DeepSeek-V4 and V3.2, with a torch operator for each cache format."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .arguments import KERNELS, check, check_reads
from .combine import combine_kernel
from .formats import CACHES, format_of
from .gluon_op import decode_gluon_bf16, decode_gluon_fp8
from .launch import HEAD_DIM, constants_of, run
from .mma import mma_kernel
from .mma_fp8 import mma_fp8_kernel
from .mma_v32 import mma_v32_kernel
from .paths import path_of
from .pinned import pinned_entries, pinned_launch, tuning_of
from .simt import simt_kernel
from .simt_fp8 import simt_fp8_kernel
from .twin import decode_twin

_TUNERS = {
    ("mma", "bf16"): mma_kernel,
    ("mma", "fp8"): mma_fp8_kernel,
    ("mma", "v32"): mma_v32_kernel,
    ("simt", "bf16"): simt_kernel,
    ("simt", "fp8"): simt_fp8_kernel,
}


def tuner_of(kernel: str, cache: str = "bf16"):
    """The autotuner that launches a kernel on a cache of this format. Raises ValueError naming the argument."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel: {kernel!r}; allowed: {', '.join(KERNELS)}")
    if cache not in CACHES:
        raise ValueError(f"cache: {cache!r}; allowed: {', '.join(CACHES)}")
    check_reads(kernel, cache)
    return _TUNERS[kernel, cache]


def decode(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str = "mma",
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per request over two index lists, softmaxed jointly, with an attention sink.

    V4: q [B, H, 512] bf16; caches [slots, 512] bf16 or both [pages, bytes] uint8 in the fp8 layout of formats.py, each
    row both key and value. V3.2: q [B, H, 576] bf16; caches [slots, 656] uint8 (formats_v32.py), values the first 512
    of a key; its one list is the extra one, and N of the window's is 0.
    indices [B, N] int32, slots in the list's cache (page * tokens a page + token), negative = padding; lengths [B]
    int32, only the leftmost `length` entries count; sink [H] fp32; scale multiplies q.k. kernel: "mma" (tl.dot) or
    "simt", tuned by their autotuners unless pinned; "gluon" (sm_90, heads in multiples of 64); "auto", what
    `paths.path_of` says, launched with its pinned tuning; V3.2 has "mma" and "auto". On a CPU all are the torch twin.
    Everything contiguous, on one device; N may be 0.
    Returns out [B, H, 512] bf16 and lse [B, H] fp32: natural log, sink excluded; an empty row gives 0 and -inf.
    Several query tokens a request (speculative decoding) are as many rows: q [B * T, H, 512], each with its own lists.
    out_h = sum_i exp(s_hi) v_i / (sum_i exp(s_hi) + exp(sink_h)), s_hi = scale q_h . k_i: FlashMLA's sparse decode, but
    for the lse of an empty row, which is +inf there.
    No host synchronisation: the work follows the lengths on the device, and a captured graph replays with new ones.
    An index at or beyond `slots` is undefined behaviour. Raises ValueError, one line, naming the argument.
    """
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    cache = check(kernel, *tensors)
    if kernel == "auto":
        return torch.ops.capturebook.sparse_mla_decode_auto(*tensors, scale, tuning_of(kernel, cache))
    ops = torch.ops.capturebook
    operator = {
        "bf16": ops.sparse_mla_decode,
        "fp8": ops.sparse_mla_decode_fp8,
        "v32": ops.sparse_mla_decode_v32,
    }[cache]
    return operator(*tensors, scale, kernel, tuning_of(kernel, cache))


@torch.library.custom_op("capturebook::sparse_mla_decode_auto", mutates_args=())
def _sparse_mla_decode_auto(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    tuning: str,  # unused here; a cache key (see pinned.tuning_of)
) -> tuple[Tensor, Tensor]:
    """The path by the rule, pinned. torch.compile does not look into it: what it launches is the same in and out of it.

    Inductor could not launch the combine early, and would be given kernels without inline PTX (see launch.run).
    """
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    if q.device.type == "cpu":
        return decode_twin(*tensors, scale)
    major, minor = torch.cuda.get_device_capability(q.device)
    sm, cache = major * 10 + minor, format_of(window_cache)
    entries = window_indices.shape[1] + extra_indices.shape[1]
    if path_of(sm, q.shape[0], q.shape[1], cache, entries) == "gluon":
        return (decode_gluon_fp8 if cache == "fp8" else decode_gluon_bf16)(*tensors, scale)
    return run(tuner_of("mma", cache).fn, combine_kernel, "mma", tensors, scale, **pinned_launch(sm, q, cache))


@triton_op("capturebook::sparse_mla_decode", mutates_args=())
def _sparse_mla_decode(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str,
    tuning: str,  # unused here; a cache key (see pinned.tuning_of)
) -> tuple[Tensor, Tensor]:
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    if q.device.type == "cpu":
        return decode_twin(*tensors, scale)
    major, minor = torch.cuda.get_device_capability(q.device)
    sm = major * 10 + minor
    if kernel == "gluon":
        _check_wgmma(sm)
        return decode_gluon_bf16(*tensors, scale)
    constants = constants_of(kernel, "bf16", sm) | {"entries": pinned_entries(kernel)}
    # torch finds an operator's kernels by reading its source for wrap_triton(<name>), so both are spelled out
    combine = wrap_triton(combine_kernel)
    if kernel == "mma":
        return run(wrap_triton(mma_kernel), combine, kernel, tensors, scale, **constants)
    return run(wrap_triton(simt_kernel), combine, kernel, tensors, scale, **constants)


@triton_op("capturebook::sparse_mla_decode_fp8", mutates_args=())
def _sparse_mla_decode_fp8(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str,
    tuning: str,
) -> tuple[Tensor, Tensor]:
    """As the operator above, for caches of fp8 pages: the kernels that a call launches are in its own source."""
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    if q.device.type == "cpu":
        return decode_twin(*tensors, scale)
    major, minor = torch.cuda.get_device_capability(q.device)
    sm = major * 10 + minor
    if kernel == "gluon":
        _check_wgmma(sm)
        return decode_gluon_fp8(*tensors, scale)
    constants = constants_of(kernel, "fp8", sm) | {"entries": pinned_entries(kernel, "fp8")}
    combine = wrap_triton(combine_kernel)
    if kernel == "mma":
        return run(wrap_triton(mma_fp8_kernel), combine, kernel, tensors, scale, **constants)
    return run(wrap_triton(simt_fp8_kernel), combine, kernel, tensors, scale, **constants)


@triton_op("capturebook::sparse_mla_decode_v32", mutates_args=())
def _sparse_mla_decode_v32(
    q: Tensor,
    window_cache: Tensor,
    window_indices: Tensor,
    window_lengths: Tensor,
    extra_cache: Tensor,
    extra_indices: Tensor,
    extra_lengths: Tensor,
    sink: Tensor,
    scale: float,
    kernel: str,
    tuning: str,
) -> tuple[Tensor, Tensor]:
    """As the operators above, for V3.2's cache, which "mma" alone reads."""
    tensors = (
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
    )
    if q.device.type == "cpu":
        return decode_twin(*tensors, scale)
    major, minor = torch.cuda.get_device_capability(q.device)
    constants = constants_of(kernel, "v32", major * 10 + minor) | {"entries": pinned_entries(kernel, "v32")}
    return run(wrap_triton(mma_v32_kernel), wrap_triton(combine_kernel), kernel, tensors, scale, **constants)


@_sparse_mla_decode_auto.register_fake
@_sparse_mla_decode.register_fake
@_sparse_mla_decode_fp8.register_fake
@_sparse_mla_decode_v32.register_fake
def _(q, *others):
    return q.new_empty((*q.shape[:2], HEAD_DIM)), q.new_empty(q.shape[:2], dtype=torch.float32)


def _check_wgmma(sm: int) -> None:
    if sm != 90:
        raise ValueError(f"kernel: 'gluon' on sm_{sm}; allowed: on sm_90")
