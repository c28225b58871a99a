"""`quantise`, `swiglu`, `swiglu_quantise`: rows, as torch operators of namespace capturebook.

fp8 here is (values e4m3 [rows, D], scales fp32 [rows, D / 128]): powers of two, column-major (strides 1, rows), as
GEMMs with block scales want those of their left operand. What it stands for is value * scale: see
`reference_rows.dequantise`. On a CPU each operator is torch ops in fp32. None synchronises with the host.
"""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import launch_rows as launch
from .check import BF16, check, check_groups
from .quantise_rows import quantise_kernel
from .reference_rows import quantise_reference, swiglu_reference
from .swiglu_rows import swiglu_kernel


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 of finite rows x [rows, D] bf16, D a multiple of 128: (values, scales). One launch.

    Raises ValueError, one line, naming the argument; so do the operators below.
    """
    check_groups("x", x)
    check("x", x, ("x", x, BF16, tuple(x.shape)))
    return launch.as_fp8(*torch.ops.capturebook.glue_quantise(x))


def swiglu(x: Tensor, limit: float = 10.0) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit): [N, F] bf16. One launch.

    x [N, 2 F] bf16, gate in front of up, F a multiple of 128.
    """
    _check_swiglu(x, limit)
    return torch.ops.capturebook.glue_swiglu(x, limit)


def swiglu_quantise(x: Tensor, limit: float = 10.0) -> tuple[Tensor, Tensor]:
    """`swiglu` in fp8: (values [N, F], scales [N, F / 128]). One launch."""
    _check_swiglu(x, limit)
    return launch.as_fp8(*torch.ops.capturebook.glue_swiglu_quantise(x, limit))


def _check_swiglu(x: Tensor, limit: float) -> None:
    check_groups("x", x, 2)
    check("x", x, ("x", x, BF16, tuple(x.shape)))
    if not limit > 0:
        raise ValueError(f"limit: {limit}; allowed: above 0")


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
def _swiglu(x: Tensor, limit: float) -> Tensor:
    if x.device.type == "cpu":
        return swiglu_reference(x, limit, torch.float32).to(x.dtype)
    kernel = wrap_triton(swiglu_kernel)
    return launch.swiglu(kernel, x, limit, False, **launch.options(kernel, x))


@_swiglu.register_fake
def _(x, limit):
    return x.new_empty((x.shape[0], x.shape[1] // 2))


@triton_op("capturebook::glue_swiglu_quantise", mutates_args=())
def _swiglu_quantise(x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    if x.device.type == "cpu":
        return launch.as_bytes(*quantise_reference(swiglu_reference(x, limit, torch.float32)))
    kernel = wrap_triton(swiglu_kernel)
    return launch.swiglu(kernel, x, limit, True, **launch.options(kernel, x))


@_swiglu_quantise.register_fake
def _(x, limit):
    return launch.fp8_rows(x, x.shape[0], x.shape[1] // 2)
