"""How mHC becomes launches: buffers, arguments, grids. Used by the operators, the interpreter and the build check.

Kernels are jitted functions, or what torch's wrap_triton makes of them. They wait for what is in front of them to end:
started early, as the other glue is, the two of one sublayer took 12.2 us on an H200 and not 11.3 (64 tokens).
"""

import torch
from torch import Tensor

from ..sparse_mla.launch import power_of_two
from .launch_rows import fp8_rows
from .reference import COPIES, ITERATIONS, MIXES

COLUMNS = 32
"""A token's row of the projection: MIXES products, the sum of squares, and room."""

SPLITS, BLOCK_B, BLOCK_D, PROJECT_WARPS = 64, 16, 32, 4
"""A token's D is cut into 64 at most, so that 64 tokens make 256 programs: 6.8 us on an H200, 128 took 7.1. A tile of
16 x 32 values on 4 warps has the layout of the token's 32 weights: see `project_kernel`."""

EXPAND_BLOCK = 1024


def pre(
    kernels: tuple,
    tensors: tuple[Tensor, ...],
    norm: Tensor | None,
    dtype: torch.dtype,
    e4m3: bool,
    dot_fp32: bool = False,
) -> tuple:
    """(collapsed, after, comb) as `mhc_pre`; with a norm (normed, values, scales [D / 128, B], after, comb).

    tensors: streams, projection, scale, base. kernels: project and collapse. e4m3: the device has the conversion;
    dot_fp32: see `project_kernel`.
    """
    partial = _project(kernels[0], (tensors[0],) * 4, tensors[1], None, dot_fp32)
    return _collapse(kernels[1], tensors, partial, norm, dtype, e4m3)


def post_pre(
    kernels: tuple,
    before: tuple[Tensor, ...],
    behind: tuple[Tensor, ...],
    norm: Tensor,
    dtype: torch.dtype,
    e4m3: bool,
    dot_fp32: bool = False,
) -> tuple:
    """(new streams, *as `pre` with a norm).

    before: streams, out, after, comb of the sublayer that ends; behind: projection, scale, base of the next.
    """
    new = torch.empty_like(before[0])
    partial = _project(kernels[0], before, behind[0], new, dot_fp32)
    return new, *_collapse(kernels[1], (new, *behind), partial, norm, dtype, e4m3)


def post(expand, tensors: tuple[Tensor, ...]) -> Tensor:
    """New streams as `mhc_post`. tensors: streams, out, after, comb."""
    new = torch.empty_like(tensors[0])
    batch, _, d = new.shape
    expand[(batch, d // EXPAND_BLOCK)](**expand_arguments(tensors, new))
    return new


def splits_of(d: int) -> int:
    """Programs that share D in `project_kernel`: the largest power of two that leaves each whole blocks."""
    blocks = d // BLOCK_D
    return min(blocks & -blocks, SPLITS)


def collapse_warps(d: int) -> int:
    """Warps of a program that has a token's D values: 4 for 4096, which took 4.9 us on an H200, and 8 took 5.5."""
    return max(4, power_of_two(d) // 1024)


def _project(kernel, before: tuple[Tensor, ...], projection: Tensor, new: Tensor | None, dot_fp32: bool) -> Tensor:
    streams = before[0]
    splits = splits_of(streams.shape[2])
    partial = streams.new_empty((splits, len(streams), COLUMNS), dtype=torch.float32)
    arguments = project_arguments(before, projection, new, partial)
    kernel[(-(-len(streams) // BLOCK_B), splits)](**arguments, DOT_FP32=dot_fp32, num_warps=PROJECT_WARPS)
    return partial


def _collapse(kernel, tensors: tuple[Tensor, ...], partial: Tensor, norm: Tensor | None, dtype, e4m3: bool) -> tuple:
    streams = tensors[0]
    batch, _, d = streams.shape
    collapsed = streams.new_empty((batch, d), dtype=dtype)
    fp8 = fp8_rows(streams, batch, d) if norm is not None else ()
    after = streams.new_empty((batch, COPIES), dtype=torch.float32)
    comb = streams.new_empty((batch, COPIES, COPIES), dtype=torch.float32)
    outputs = (collapsed, *fp8, after, comb)
    arguments = collapse_arguments(tensors, partial, norm, outputs)
    kernel[(2 * batch,)](**arguments, E4M3=e4m3, num_warps=collapse_warps(d))
    return outputs


def project_arguments(before: tuple[Tensor, ...], projection: Tensor, new: Tensor | None, partial: Tensor) -> dict:
    """Arguments of `project_kernel` by name, without DOT_FP32. Without `new` nothing is expanded."""
    streams, out, after, comb = before
    return dict(
        streams=streams,
        out=out,
        after=after,
        comb=comb,
        projection=projection,
        new=streams if new is None else new,
        partial=partial,
        batch=len(streams),
        D=streams.shape[2],
        MIXES=MIXES,
        COLUMNS=COLUMNS,
        SPLITS=len(partial),
        BLOCK_B=BLOCK_B,
        BLOCK_D=BLOCK_D,
        EXPAND=new is not None,
    )


def collapse_arguments(tensors: tuple[Tensor, ...], partial: Tensor, norm: Tensor | None, outputs: tuple) -> dict:
    """Arguments of `collapse_kernel` by name, without E4M3; outputs as `pre` returns them."""
    streams, _, scale, base = tensors
    collapsed, *fp8, after, comb = outputs
    values, scales = fp8 or (collapsed, after)
    return dict(
        streams=streams,
        partial=partial,
        scale=scale,
        base=base,
        norm=base if norm is None else norm,
        collapsed=collapsed,
        values=values,
        scales=scales,
        after=after,
        comb=comb,
        batch=len(streams),
        D=streams.shape[2],
        COLUMNS=COLUMNS,
        SPLITS=len(partial),
        ITERATIONS=ITERATIONS,
        BLOCK_D=power_of_two(streams.shape[2]),
        NORM=norm is not None,
    )


def expand_arguments(tensors: tuple[Tensor, ...], new: Tensor) -> dict:
    """Arguments of `expand_kernel` by name."""
    streams, out, after, comb = tensors
    return dict(streams=streams, out=out, after=after, comb=comb, new=new, D=streams.shape[2], BLOCK_D=EXPAND_BLOCK)
