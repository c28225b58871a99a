"""`mhc_pre` and `mhc_post`: what stands before and after each sublayer, as torch operators of namespace capturebook."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .check import BF16, FP32, check
from .collapse import collapse_kernel
from .expand import expand_kernel
from .launch import EXPAND_BLOCK, post, post_pre, pre
from .launch_rows import as_bytes, as_fp8, fp8_rows, has_e4m3
from .project import project_kernel
from .reference import COPIES, MIXES, mhc_post_reference, mhc_pre_reference
from .reference_rows import quantise_reference, rms_norm_reference


def mhc_pre(streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sublayer's input from the four copies of the residual stream, and the weights that `mhc_post` needs.

    streams [B, 4, D] bf16, D a multiple of 1024; projection [24, 4 D], scale [3] and base [24] fp32; contiguous, on
    one device. Returns (collapsed [B, D] bf16, after [B, 4] fp32, comb [B, 4, 4] fp32): see `mhc_pre_reference`.
    Two launches; on a CPU torch ops in fp32. No host synchronisation. Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    check("streams", streams, ("streams", streams, BF16, (batch, COPIES, d)), *_before(projection, scale, base, d))
    return torch.ops.capturebook.mhc_pre(streams, projection, scale, base)


def mhc_post(streams: Tensor, out: Tensor, after: Tensor, comb: Tensor) -> Tensor:
    """The residual stream after a sublayer: new [B, 4, D] bf16, copy i = after_i * out + sum_j comb_ji * copy j.

    streams as in `mhc_pre`; out [B, D] bf16, what the sublayer returned; after and comb from `mhc_pre`. One launch.
    Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    check("streams", streams, ("streams", streams, BF16, (batch, COPIES, d)), *_behind(out, after, comb, batch, d))
    return torch.ops.capturebook.mhc_post(streams, out, after, comb)


def mhc_pre_norm(
    streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`mhc_pre` and the RMSNorm of what it collapses: (normed [B, D] bf16, values, scales, after, comb).

    norm [D] fp32; values e4m3 [B, D] and scales [B, D / 128] are the normed stream in fp8, as in op_rows.py; all else
    as in `mhc_pre`. Two launches. Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    weights = (*_before(projection, scale, base, d), ("norm", norm, FP32, (d,)))
    check("streams", streams, ("streams", streams, BF16, (batch, COPIES, d)), *weights)
    normed, values, scales, *rest = torch.ops.capturebook.mhc_pre_norm(streams, projection, scale, base, norm)
    return normed, *as_fp8(values, scales), *rest


def mhc_post_pre_norm(
    streams: Tensor,
    out: Tensor,
    after: Tensor,
    comb: Tensor,
    projection: Tensor,
    scale: Tensor,
    base: Tensor,
    norm: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`mhc_post` after one sublayer and `mhc_pre_norm` before the next: (new, normed, values, scales, after, comb).

    streams, out, after, comb as in `mhc_post`; projection, scale, base, norm of the next sublayer. Two launches.
    Raises ValueError, one line, naming the argument.
    """
    batch, d = _streams(streams)
    weights = (*_before(projection, scale, base, d), ("norm", norm, FP32, (d,)))
    behind = _behind(out, after, comb, batch, d)
    check("streams", streams, ("streams", streams, BF16, (batch, COPIES, d)), *behind, *weights)
    tensors = (streams, out, after, comb, projection, scale, base, norm)
    new, normed, values, scales, *rest = torch.ops.capturebook.mhc_post_pre_norm(*tensors)
    return new, normed, *as_fp8(values, scales), *rest


def _streams(streams: Tensor) -> tuple[int, int]:
    """(batch, D) of a residual stream."""
    if streams.dim() != 3 or streams.shape[1] != COPIES or streams.shape[2] % EXPAND_BLOCK:
        allowed = f"[batch, {COPIES}, a multiple of {EXPAND_BLOCK}]"
        raise ValueError(f"streams: shape {tuple(streams.shape)}; allowed: {allowed}")
    return streams.shape[0], streams.shape[2]


def _before(projection: Tensor, scale: Tensor, base: Tensor, d: int) -> tuple[tuple, ...]:
    """What `check` wants of mHC's weights of one sublayer."""
    shape = (MIXES, COPIES * d)
    return ("projection", projection, FP32, shape), ("scale", scale, FP32, (3,)), ("base", base, FP32, (MIXES,))


def _behind(out: Tensor, after: Tensor, comb: Tensor, batch: int, d: int) -> tuple[tuple, ...]:
    """What `check` wants of a sublayer's output and of the weights that follow it."""
    comb_shape = (batch, COPIES, COPIES)
    return ("out", out, BF16, (batch, d)), ("after", after, FP32, (batch, COPIES)), ("comb", comb, FP32, comb_shape)


@triton_op("capturebook::mhc_pre", mutates_args=())
def _mhc_pre(streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    tensors = (streams, projection, scale, base)
    if streams.device.type == "cpu":
        collapsed, after, comb = mhc_pre_reference(*tensors, dtype=torch.float32)
        return collapsed.to(streams.dtype), after, comb
    project, collapse = wrap_triton(project_kernel), wrap_triton(collapse_kernel)
    return pre((project, collapse), tensors, None, streams.dtype, has_e4m3(streams))


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


@triton_op("capturebook::mhc_pre_norm", mutates_args=())
def _mhc_pre_norm(
    streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tensors = (streams, projection, scale, base)
    if streams.device.type == "cpu":
        return _normed_on_cpu(tensors, norm)
    project, collapse = wrap_triton(project_kernel), wrap_triton(collapse_kernel)
    return pre((project, collapse), tensors, norm, streams.dtype, has_e4m3(streams))


@_mhc_pre_norm.register_fake
def _(streams, projection, scale, base, norm):
    return _normed_fake(streams)


@triton_op("capturebook::mhc_post_pre_norm", mutates_args=())
def _mhc_post_pre_norm(
    streams: Tensor,
    out: Tensor,
    after: Tensor,
    comb: Tensor,
    projection: Tensor,
    scale: Tensor,
    base: Tensor,
    norm: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    before, behind = (streams, out, after, comb), (projection, scale, base)
    if streams.device.type == "cpu":
        new = mhc_post_reference(*before, dtype=FP32).to(streams.dtype)
        return new, *_normed_on_cpu((new, *behind), norm)
    project, collapse = wrap_triton(project_kernel), wrap_triton(collapse_kernel)
    return post_pre((project, collapse), before, behind, norm, streams.dtype, has_e4m3(streams))


@_mhc_post_pre_norm.register_fake
def _(streams, out, after, comb, projection, scale, base, norm):
    return torch.empty_like(streams), *_normed_fake(streams)


def _normed_on_cpu(tensors: tuple[Tensor, ...], norm: Tensor) -> tuple[Tensor, ...]:
    collapsed, after, comb = mhc_pre_reference(*tensors, dtype=FP32)
    normed = rms_norm_reference(collapsed, norm, FP32)
    return normed.to(tensors[0].dtype), *as_bytes(*quantise_reference(normed)), after, comb


def _normed_fake(streams: Tensor) -> tuple[Tensor, ...]:
    batch, _, d = streams.shape
    after, comb = (streams.new_empty((batch, *shape), dtype=FP32) for shape in ((COPIES,), (COPIES, COPIES)))
    return streams.new_empty((batch, d)), *fp8_rows(streams, batch, d), after, comb
