"""How the glue of rows and heads becomes launches: buffers, arguments, grids; mHC's is in launch.py."""

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from ..sparse_mla.formats import format_of, page_tokens
from ..sparse_mla.launch import power_of_two

HEADS, GROUPS = 8, 8
"""Heads, and groups of 128 values, that one program takes at most."""


def has_e4m3(tensor: Tensor) -> bool:
    """Whether the tensor's device converts to e4m3: sm_89 and later."""
    return torch.cuda.get_device_capability(tensor.device) >= (8, 9)


def options(kernel, tensor: Tensor) -> dict:
    """What a launch is told beside its arguments: E4M3 and PDL by the device, and PDL's launch attribute.

    A kernel that torch is tracing starts when the one in front of it has ended: Inductor has no way to say otherwise.
    """
    early = isinstance(kernel, JITFunction) and torch.cuda.get_device_capability(tensor.device) >= (9, 0)
    return {"E4M3": has_e4m3(tensor), "PDL": early} | ({"launch_pdl": True} if early else {})


def fp8_rows(like: Tensor, rows: int, d: int) -> tuple[Tensor, Tensor]:
    """Unwritten (values [rows, d] as bytes, scales [d / 128, rows] fp32): fp8 as kernels write it."""
    return like.new_empty((rows, d), dtype=torch.uint8), like.new_empty((d // 128, rows), dtype=torch.float32)


def as_fp8(values: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 as callers get it, views of what kernels wrote: e4m3, and scales [rows, d / 128], column-major."""
    return values.view(torch.float8_e4m3fn), scales.T


def as_bytes(values: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The reverse of `as_fp8`."""
    return values.view(torch.uint8), scales.T.contiguous()


def quantise(kernel, x: Tensor, **constants) -> tuple[Tensor, Tensor]:
    """(values, scales [D / 128, rows]) of rows."""
    rows, d = x.shape
    values, scales = fp8_rows(x, rows, d)
    arguments = quantise_arguments(x, values, scales)
    kernel[(rows, -(-d // 128 // arguments["GROUPS"]))](**arguments, **constants)
    return values, scales


def quantise_arguments(x: Tensor, values: Tensor, scales: Tensor) -> dict:
    """Arguments of `quantise_kernel` by name, without those of `options`."""
    rows, d = values.shape
    groups = min(GROUPS, power_of_two(d // 128))
    return dict(x=x, values=values, scales=scales, rows=rows, D=d, GROUPS=groups)


def swiglu(kernel, x: Tensor, limit: float, fp8: bool, **constants) -> tuple[Tensor, Tensor] | Tensor:
    """SwiGLU of rows [N, 2 F]: (values, scales [F / 128, N]), or with fp8=False values in x's dtype."""
    rows, d = x.shape[0], x.shape[1] // 2
    values, scales = fp8_rows(x, rows, d) if fp8 else (x.new_empty((rows, d)), x)
    arguments = swiglu_arguments(x, limit, values, scales, fp8)
    kernel[(rows, -(-d // 128 // arguments["GROUPS"]))](**arguments, **constants)
    return (values, scales) if fp8 else values


def swiglu_arguments(x: Tensor, limit: float, values: Tensor, scales: Tensor, fp8: bool = True) -> dict:
    """Arguments of `swiglu_kernel` by name, without those of `options`."""
    return quantise_arguments(x, values, scales) | {"limit": limit, "FP8": fp8}


def q_heads(kernel, q: Tensor, table: Tensor, positions: Tensor, padded: int, norm: bool = True, **constants) -> Tensor:
    """Rotated heads [B, padded, D]."""
    rotated = q.new_empty((len(q), padded, q.shape[2]))
    arguments = q_heads_arguments(q, table, positions, rotated, norm)
    kernel[(len(q), -(-padded // arguments["HEADS"]))](**arguments, **constants)
    return rotated


def q_heads_arguments(q: Tensor, table: Tensor, positions: Tensor, rotated: Tensor, norm: bool = True) -> dict:
    """Arguments of `q_heads_kernel` by name, without PDL."""
    padded, d = rotated.shape[1:]
    return dict(
        q=q,
        table=table,
        positions=positions,
        rotated=rotated,
        heads=q.shape[1],
        padded=padded,
        D=d,
        HEADS=min(HEADS * 512 // d, power_of_two(padded)),
        NORM=norm,
    )


def out_heads(
    kernel, out: Tensor, table: Tensor, positions: Tensor, heads: int, fp8: bool, **constants
) -> tuple[Tensor, Tensor] | Tensor:
    """The first `heads` heads: (values [B, heads * 512], scales [heads * 4, B]), or with fp8=False values alone."""
    rows, d = len(out), heads * out.shape[2]
    values, scales = fp8_rows(out, rows, d) if fp8 else (out.new_empty((rows, d)), table)
    arguments = out_heads_arguments(out, table, positions, heads, values, scales, fp8)
    kernel[(rows, -(-heads // arguments["HEADS"]))](**arguments, **constants)
    return (values, scales) if fp8 else values


def out_heads_arguments(
    out: Tensor, table: Tensor, positions: Tensor, heads: int, values: Tensor, scales: Tensor, fp8: bool = True
) -> dict:
    """Arguments of `out_heads_kernel` by name, without those of `options`."""
    return dict(
        out=out,
        table=table,
        positions=positions,
        values=values,
        scales=scales,
        batch=len(out),
        heads=heads,
        padded=out.shape[1],
        HEADS=min(HEADS, power_of_two(heads)),
        FP8=fp8,
    )


def qkv(kernel, tensors: tuple[Tensor, ...], **constants) -> tuple[Tensor, Tensor, Tensor]:
    """(normed [B, Q] bf16, values, scales [Q / 128, B]); tensors as `qkv_arguments` names them, the cache written."""
    latent, q_norm = tensors[:2]
    normed = latent.new_empty((len(latent), len(q_norm)))
    values, scales = fp8_rows(latent, *normed.shape)
    kernel[(len(latent), 2)](**qkv_arguments(tensors, normed, values, scales), **constants)
    return normed, values, scales


def qkv_arguments(tensors: tuple[Tensor, ...], normed: Tensor, values: Tensor, scales: Tensor) -> dict:
    """Arguments of `qkv_kernel` by name, without those of `options`."""
    names = ("latent", "q_norm", "kv_norm", "table", "positions", "cache", "slots")
    given = dict(zip(names, tensors, strict=True))
    written = dict(normed=normed, values=values, scales=scales)
    return given | written | {"batch": len(normed), "Q": normed.shape[1]} | cache_arguments(given["cache"])


def entry(kernel, tensors: tuple[Tensor, ...], **constants) -> None:
    """Writes entries; tensors as `entry_arguments` names them."""
    kernel[(len(tensors[0]),)](**entry_arguments(tensors), **constants)


def entry_arguments(tensors: tuple[Tensor, ...]) -> dict:
    """Arguments of `entry_kernel` by name, without those of `options`."""
    given = dict(zip(("entry", "gain", "table", "positions", "cache", "slots"), tensors, strict=True))
    return given | cache_arguments(given["cache"])


def cache_arguments(cache: Tensor) -> dict:
    """PAGE, STRIDE and FP8 of a cache; a bf16 cache has no pages."""
    if format_of(cache) == "fp8":
        return {"PAGE": page_tokens(cache.shape[1]), "STRIDE": cache.shape[1], "FP8": True}
    return {"PAGE": 1, "STRIDE": 1, "FP8": False}
