"""`quantise`, `swiglu_quantise`, `q_norm_rope`, `rope_inverse_quantise`: torch operators of namespace capturebook.

fp8 here is (values e4m3 [rows, D], scales fp32 [rows, D / 128]): powers of two, column-major (strides 1, rows), as
GEMMs with block scales want those of their left operand. What it stands for is value * scale: see
`reference_rows.dequantise`. On a CPU each operator is torch ops in fp32. None synchronises with the host.
"""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import launch_rows as launch
from .check import BF16, check, check_groups, check_heads, rotation
from .out_heads import out_heads_kernel
from .q_heads import q_heads_kernel
from .quantise_rows import quantise_kernel
from .reference_rows import q_heads_reference, quantise_reference, rotate_reference, swiglu_reference
from .swiglu import swiglu_kernel


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 of finite rows x [rows, D] bf16, D a multiple of 128: (values, scales). One launch.

    Raises ValueError, one line, naming the argument; so do the operators below.
    """
    check_groups("x", x)
    check("x", x, ("x", x, BF16, tuple(x.shape)))
    return launch.as_fp8(*torch.ops.capturebook.glue_quantise(x))


def swiglu_quantise(x: Tensor, limit: float = 10.0) -> tuple[Tensor, Tensor]:
    """fp8 of silu(min(gate, limit)) * clamp(up, -limit, limit): (values [N, F], scales [N, F / 128]). One launch.

    x [N, 2 F] bf16, gate in front of up, F a multiple of 128.
    """
    check_groups("x", x, 2)
    check("x", x, ("x", x, BF16, tuple(x.shape)))
    if not limit > 0:
        raise ValueError(f"limit: {limit}; allowed: above 0")
    return launch.as_fp8(*torch.ops.capturebook.glue_swiglu(x, limit))


def q_norm_rope(q: Tensor, table: Tensor, positions: Tensor, heads: int | None = None) -> Tensor:
    """Each head of q [B, H, 512] bf16 over its root mean square, its last 64 values rotated. One launch.

    table [P, 64] fp32, the cosines of a position's 32 angles and their sines behind them; positions [B] int32, all of
    them in the table. heads: of the result [B, heads, 512] bf16, those beyond H zero; by default H.
    """
    check_heads("q", q, heads, None)
    check("q", q, ("q", q, BF16, tuple(q.shape)), *rotation(len(q), table, positions))
    return torch.ops.capturebook.glue_q_heads(q, table, positions, heads or q.shape[1])


def rope_inverse_quantise(
    out: Tensor, table: Tensor, positions: Tensor, heads: int | None = None
) -> tuple[Tensor, Tensor]:
    """fp8 of the attention's output, rotated back: (values [B, heads * 512], scales [B, heads * 4]). One launch.

    out [B, H, 512] bf16; its first `heads` heads count, by default all. table and positions as in `q_norm_rope`.
    """
    check_heads("out", out, heads, out.shape[1] if out.dim() == 3 else None)
    check("out", out, ("out", out, BF16, tuple(out.shape)), *rotation(len(out), table, positions))
    return launch.as_fp8(*torch.ops.capturebook.glue_out_heads(out, table, positions, heads or out.shape[1]))


@triton_op("capturebook::glue_quantise", mutates_args=())
def _quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    if x.device.type == "cpu":
        return launch.as_bytes(*quantise_reference(x))
    kernel = wrap_triton(quantise_kernel)
    return launch.quantise(kernel, x, **launch.options(kernel, x))


@_quantise.register_fake
def _(x):
    return launch.fp8_rows(x, *x.shape)


@triton_op("capturebook::glue_swiglu", mutates_args=())
def _swiglu(x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    if x.device.type == "cpu":
        return launch.as_bytes(*quantise_reference(swiglu_reference(x, limit, torch.float32)))
    kernel = wrap_triton(swiglu_kernel)
    return launch.swiglu(kernel, x, limit, **launch.options(kernel, x))


@_swiglu.register_fake
def _(x, limit):
    return launch.fp8_rows(x, x.shape[0], x.shape[1] // 2)


@triton_op("capturebook::glue_q_heads", mutates_args=())
def _q_heads(q: Tensor, table: Tensor, positions: Tensor, heads: int) -> Tensor:
    if q.device.type == "cpu":
        return q_heads_reference(q, table, positions, heads, torch.float32).to(q.dtype)
    kernel = wrap_triton(q_heads_kernel)
    told = launch.options(kernel, q)
    told.pop("E4M3")
    return launch.q_heads(kernel, q, table, positions, heads, **told)


@_q_heads.register_fake
def _(q, table, positions, heads):
    return q.new_empty((q.shape[0], heads, q.shape[2]))


@triton_op("capturebook::glue_out_heads", mutates_args=())
def _out_heads(out: Tensor, table: Tensor, positions: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    if out.device.type == "cpu":
        turned = rotate_reference(out[:, :heads], table, positions, True, torch.float32)
        return launch.as_bytes(*quantise_reference(turned.flatten(1)))
    kernel = wrap_triton(out_heads_kernel)
    return launch.out_heads(kernel, out, table, positions, heads, **launch.options(kernel, out))


@_out_heads.register_fake
def _(out, table, positions, heads):
    return launch.fp8_rows(out, out.shape[0], heads * out.shape[2])
