"""`q_norm_rope`, `rope`, `rope_inverse`, `rope_inverse_quantise`: heads, as torch operators; fp8 as in op_rows.py."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import launch_rows as launch
from .check import BF16, check, check_heads, rotation
from .out_heads import out_heads_kernel
from .q_heads import q_heads_kernel
from .reference_rows import HEAD, q_heads_reference, quantise_reference, rotate_reference


def q_norm_rope(q: Tensor, table: Tensor, positions: Tensor, heads: int | None = None) -> Tensor:
    """Each head of q [B, H, 512] bf16 over its root mean square, its last 64 values rotated. One launch.

    table [P, 64] fp32, the cosines of a position's 32 angles and their sines behind them; positions [B] int32, all of
    them in the table. heads: of the result [B, heads, 512] bf16, those beyond H zero; by default H.
    Raises ValueError, one line, naming the argument; so do the operators below.
    """
    check_heads("q", q, HEAD)
    if heads is not None and heads < q.shape[1]:
        raise ValueError(f"heads: {heads}; allowed: at least q's {q.shape[1]}")
    check("q", q, ("q", q, BF16, tuple(q.shape)), *rotation(len(q), table, positions))
    return torch.ops.capturebook.glue_q_heads(q, table, positions, heads or q.shape[1], True)


def rope(q: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """q [B, H, D] bf16 with the last 64 values of each head rotated, D a power of two from 128 to 512. One launch."""
    width = q.shape[2] if q.dim() == 3 and q.shape[2] in (128, 256) else HEAD
    check_heads("q", q, width)
    check("q", q, ("q", q, BF16, tuple(q.shape)), *rotation(len(q), table, positions))
    return torch.ops.capturebook.glue_q_heads(q, table, positions, q.shape[1], False)


def rope_inverse(out: Tensor, table: Tensor, positions: Tensor, heads: int | None = None) -> Tensor:
    """The attention's output, rotated back: [B, heads * 512] bf16. One launch.

    out [B, H, 512] bf16; its first `heads` heads count, by default all. table and positions as in `q_norm_rope`.
    """
    _check_out(out, table, positions, heads)
    return torch.ops.capturebook.glue_out_heads(out, table, positions, heads or out.shape[1])


def rope_inverse_quantise(
    out: Tensor, table: Tensor, positions: Tensor, heads: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rope_inverse` in fp8: (values [B, heads * 512], scales [B, heads * 4]). One launch."""
    _check_out(out, table, positions, heads)
    found = torch.ops.capturebook.glue_out_heads_quantise(out, table, positions, heads or out.shape[1])
    return launch.as_fp8(*found)


def _check_out(out: Tensor, table: Tensor, positions: Tensor, heads: int | None) -> None:
    check_heads("out", out, HEAD)
    if heads is not None and not 1 <= heads <= out.shape[1]:
        raise ValueError(f"heads: {heads}; allowed: 1 to out's {out.shape[1]}")
    check("out", out, ("out", out, BF16, tuple(out.shape)), *rotation(len(out), table, positions))


@triton_op("capturebook::glue_q_heads", mutates_args=())
def _q_heads(q: Tensor, table: Tensor, positions: Tensor, heads: int, norm: bool) -> Tensor:
    if q.device.type == "cpu":
        if norm:
            return q_heads_reference(q, table, positions, heads, torch.float32).to(q.dtype)
        return rotate_reference(q, table, positions, dtype=torch.float32).to(q.dtype)
    kernel = wrap_triton(q_heads_kernel)
    told = launch.options(kernel, q)
    told.pop("E4M3")
    return launch.q_heads(kernel, q, table, positions, heads, norm, **told)


@_q_heads.register_fake
def _(q, table, positions, heads, norm):
    return q.new_empty((q.shape[0], heads, q.shape[2]))


@triton_op("capturebook::glue_out_heads", mutates_args=())
def _out_heads(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    if out.device.type == "cpu":
        return _turned(out, table, positions, heads).to(out.dtype)
    kernel = wrap_triton(out_heads_kernel)
    return launch.out_heads(kernel, out, table, positions, heads, False, **launch.options(kernel, out))


@_out_heads.register_fake
def _(out, table, positions, heads):
    return out.new_empty((out.shape[0], heads * out.shape[2]))


@triton_op("capturebook::glue_out_heads_quantise", mutates_args=())
def _out_heads_quantise(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    if out.device.type == "cpu":
        return launch.as_bytes(*quantise_reference(_turned(out, table, positions, heads)))
    kernel = wrap_triton(out_heads_kernel)
    return launch.out_heads(kernel, out, table, positions, heads, True, **launch.options(kernel, out))


@_out_heads_quantise.register_fake
def _(out, table, positions, heads):
    return launch.fp8_rows(out, out.shape[0], heads * out.shape[2])


def _turned(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """[B, heads * 512] fp32, in torch ops."""
    return rotate_reference(out[:, :heads], table, positions, True, torch.float32).flatten(1)
