"""`mhc_pre` and `mhc_post`: what stands before and after each sublayer, as torch operators of namespace capturebook."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .launch import BLOCK_D, post, pre
from .mhc import collapse_kernel, expand_kernel, project_kernel
from .reference import COPIES, MIXES, mhc_post_reference, mhc_pre_reference


def mhc_pre(streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sublayer's input from the four copies of the residual stream, and the weights that `mhc_post` needs.

    streams [B, 4, D] bf16, D a multiple of 1024; projection [24, 4 D], scale [3] and base [24] fp32; contiguous, on
    one device. Returns (collapsed [B, D] bf16, after [B, 4] fp32, comb [B, 4, 4] fp32): see `mhc_pre_reference`.
    Two launches; on a CPU torch ops in fp32. No host synchronisation. Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    fp32 = torch.float32
    _check(streams, ("projection", projection, fp32, (MIXES, COPIES * d)), ("scale", scale, fp32, (3,)))
    _check(streams, ("base", base, fp32, (MIXES,)))
    return torch.ops.capturebook.mhc_pre(streams, projection, scale, base)


def mhc_post(streams: Tensor, out: Tensor, after: Tensor, comb: Tensor) -> Tensor:
    """The residual stream after a sublayer: new [B, 4, D] bf16, copy i = after_i * out + sum_j comb_ji * copy j.

    streams as in `mhc_pre`; out [B, D] bf16, what the sublayer returned; after and comb from `mhc_pre`. One launch.
    Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    fp32 = torch.float32
    _check(streams, ("out", out, torch.bfloat16, (batch, d)), ("after", after, fp32, (batch, COPIES)))
    _check(streams, ("comb", comb, fp32, (batch, COPIES, COPIES)))
    return torch.ops.capturebook.mhc_post(streams, out, after, comb)


def _streams(streams: Tensor) -> tuple[int, int]:
    """(batch, D) of a residual stream."""
    if streams.dim() != 3 or streams.shape[1] != COPIES or streams.shape[2] % BLOCK_D:
        allowed = f"[batch, {COPIES}, a multiple of {BLOCK_D}]"
        raise ValueError(f"streams: shape {tuple(streams.shape)}; allowed: {allowed}")
    _check(streams, ("streams", streams, torch.bfloat16, tuple(streams.shape)))
    return streams.shape[0], streams.shape[2]


def _check(streams: Tensor, *wanted: tuple) -> None:
    for name, tensor, dtype, shape in wanted:
        if tensor.dtype != dtype:
            raise ValueError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}: shape {tuple(tensor.shape)}; allowed: {list(shape)}")
        if tensor.device != streams.device:
            raise ValueError(f"{name}: on {tensor.device}; allowed: the streams' device, {streams.device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: strides {tensor.stride()}; allowed: contiguous")


@triton_op("capturebook::mhc_pre", mutates_args=())
def _mhc_pre(streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    tensors = (streams, projection, scale, base)
    if streams.device.type == "cpu":
        collapsed, after, comb = mhc_pre_reference(*tensors, dtype=torch.float32)
        return collapsed.to(streams.dtype), after, comb
    return pre((wrap_triton(project_kernel), wrap_triton(collapse_kernel)), tensors)


@_mhc_pre.register_fake
def _(streams, projection, scale, base):
    batch, _, d = streams.shape
    fp32 = torch.float32
    after, comb = streams.new_empty((batch, COPIES), dtype=fp32), streams.new_empty((batch, COPIES, COPIES), dtype=fp32)
    return streams.new_empty((batch, d)), after, comb


@triton_op("capturebook::mhc_post", mutates_args=())
def _mhc_post(streams: Tensor, out: Tensor, after: Tensor, comb: Tensor) -> Tensor:
    tensors = (streams, out, after, comb)
    if streams.device.type == "cpu":
        return mhc_post_reference(*tensors, dtype=torch.float32).to(streams.dtype)
    return post(wrap_triton(expand_kernel), tensors)


@_mhc_post.register_fake
def _(streams, out, after, comb):
    return torch.empty_like(streams)
