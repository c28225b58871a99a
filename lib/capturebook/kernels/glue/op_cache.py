"""`qkv_norm_store` and `kv_norm_store`: norms, rotation and the write into a cache, as torch operators."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import launch_rows as launch
from .check import BF16, FP32, check, rotation, stored
from .entry import entry_kernel
from .qkv import qkv_kernel
from .reference_rows import HEAD, quantise_reference, rms_norm_reference, rotate_reference, store_reference


def qkv_norm_store(
    latent: Tensor, q_norm: Tensor, kv_norm: Tensor, table: Tensor, positions: Tensor, cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Norms of the query's latent and of a token's entry; the first as it is and in fp8, the second into the cache.

    latent [B, Q + 512] bf16, as one projection gives both, Q a power of two from 128 on; q_norm [Q] and kv_norm [512]
    fp32; table and positions as in `q_norm_rope`. cache: pages [pages, stride] uint8 of `sparse_mla.formats`, or
    [slots, 512] bf16; slots [B] int32, in the cache and different from each other, negative where nothing is to be
    stored. Writes the cache; returns (normed [B, Q] bf16, values, scales) as in op_rows.py. One launch.
    Raises ValueError, one line, naming the argument.
    """
    batch, q = len(latent), q_norm.shape[0] if q_norm.dim() == 1 else 0
    if q < 128 or q & (q - 1):
        raise ValueError(f"q_norm: shape {tuple(q_norm.shape)}; allowed: [a power of two from 128 on]")
    check(
        "latent",
        latent,
        ("latent", latent, BF16, (batch, q + HEAD)),
        ("q_norm", q_norm, FP32, (q,)),
        ("kv_norm", kv_norm, FP32, (HEAD,)),
        *rotation(batch, table, positions),
        *stored(batch, cache, slots),
    )
    tensors = (latent, q_norm, kv_norm, table, positions, cache, slots)
    normed, values, scales = torch.ops.capturebook.glue_qkv(*tensors)
    return normed, *launch.as_fp8(values, scales)


def kv_norm_store(entry: Tensor, norm: Tensor, table: Tensor, positions: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Norm and rotation of entries [B, 512] bf16 or fp32, and the write into the cache: what compressors need.

    Other arguments as in `qkv_norm_store`; slots negative for requests whose window did not close. One launch.
    """
    batch = len(entry)
    dtype = entry.dtype if entry.dtype == FP32 else BF16
    check(
        "entry",
        entry,
        ("entry", entry, dtype, (batch, HEAD)),
        ("norm", norm, FP32, (HEAD,)),
        *rotation(batch, table, positions),
        *stored(batch, cache, slots),
    )
    torch.ops.capturebook.glue_entry(entry, norm, table, positions, cache, slots)


@triton_op("capturebook::glue_qkv", mutates_args=("cache",))
def _qkv(
    latent: Tensor, q_norm: Tensor, kv_norm: Tensor, table: Tensor, positions: Tensor, cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    if latent.device.type == "cpu":
        q = q_norm.shape[0]
        normed = rms_norm_reference(latent[:, :q], q_norm, FP32)
        store_normed(latent[:, q:], kv_norm, table, positions, cache, slots)
        return normed.to(latent.dtype), *launch.as_bytes(*quantise_reference(normed))
    kernel = wrap_triton(qkv_kernel)
    tensors = (latent, q_norm, kv_norm, table, positions, cache, slots)
    return launch.qkv(kernel, tensors, **launch.options(kernel, latent))


@_qkv.register_fake
def _(latent, q_norm, kv_norm, table, positions, cache, slots):
    batch, q = latent.shape[0], q_norm.shape[0]
    return latent.new_empty((batch, q)), *launch.fp8_rows(latent, batch, q)


@triton_op("capturebook::glue_entry", mutates_args=("cache",))
def _entry(entry: Tensor, norm: Tensor, table: Tensor, positions: Tensor, cache: Tensor, slots: Tensor) -> None:
    if entry.device.type == "cpu":
        store_normed(entry, norm, table, positions, cache, slots)
        return
    kernel = wrap_triton(entry_kernel)
    launch.entry(kernel, (entry, norm, table, positions, cache, slots), **launch.options(kernel, entry))


@_entry.register_fake
def _(entry, norm, table, positions, cache, slots):
    return None


def store_normed(entry: Tensor, norm: Tensor, table: Tensor, positions: Tensor, cache: Tensor, slots: Tensor) -> None:
    """`kv_norm_store` in torch ops, in fp32."""
    rows = rotate_reference(rms_norm_reference(entry, norm, FP32), table, positions, dtype=FP32)
    store_reference(rows, cache, slots)
