"""How mHC becomes launches: buffers, arguments, grids. Used by the operators, the interpreter and the build check."""

import torch
from torch import Tensor

from ..sparse_mla.launch import power_of_two
from .launch_rows import fp8_rows
from .reference import COPIES, ITERATIONS, MIXES

SPLITS, COLUMNS = 32, 32
BLOCK_B, BLOCK_K, BLOCK_D = 16, 128, 1024
"""Not tuned: a token's projection is cut into 32, so that 64 tokens make 128 programs; a stream's part is 1024 wide."""

EXPAND_SPLITS, EXPAND_BLOCK, EXPAND_WARPS = 128, 32, 4
BLOCK_T, COLLAPSE_WARPS = 8, 8


def pre(kernels: tuple, tensors: tuple[Tensor, ...], dtype: torch.dtype = torch.bfloat16, **constants):
    """(collapsed, after, comb) as `mhc_pre`. tensors: streams, projection, scale, base.

    kernels: `project_kernel` and `collapse_kernel`, jitted, or what torch's wrap_triton makes of them.
    """
    streams = tensors[0]
    batch, _, d = streams.shape
    partial = streams.new_empty((SPLITS, batch, COLUMNS), dtype=torch.float32)
    collapsed = streams.new_empty((batch, d), dtype=dtype)
    after = streams.new_empty((batch, COPIES), dtype=torch.float32)
    comb = streams.new_empty((batch, COPIES, COPIES), dtype=torch.float32)
    project, collapse = kernels
    project[(-(-batch // BLOCK_B), SPLITS)](**project_arguments(tensors, partial), **constants)
    collapse[(batch, d // BLOCK_D)](**collapse_arguments(tensors, partial, collapsed, after, comb), **constants)
    return collapsed, after, comb


def post(expand, tensors: tuple[Tensor, ...], **constants) -> Tensor:
    """New streams as `mhc_post`. tensors: streams, out, after, comb."""
    new = torch.empty_like(tensors[0])
    batch, _, d = new.shape
    expand[(batch, d // BLOCK_D)](**expand_arguments(tensors, new), **constants)
    return new


def project_arguments(tensors: tuple[Tensor, ...], partial: Tensor) -> dict:
    """Arguments of `project_kernel` by name."""
    streams, projection = tensors[:2]
    return dict(
        streams=streams,
        projection=projection,
        partial=partial,
        batch=len(streams),
        K=projection.shape[1],
        MIXES=MIXES,
        COLUMNS=COLUMNS,
        SPLITS=SPLITS,
        BLOCK_B=BLOCK_B,
        BLOCK_K=BLOCK_K,
    )


def collapse_arguments(
    tensors: tuple[Tensor, ...], partial: Tensor, collapsed: Tensor, after: Tensor, comb: Tensor
) -> dict:
    """Arguments of `collapse_kernel` by name."""
    streams, _, scale, base = tensors
    return dict(
        streams=streams,
        partial=partial,
        scale=scale,
        base=base,
        collapsed=collapsed,
        after=after,
        comb=comb,
        batch=len(streams),
        D=streams.shape[2],
        MIXES=MIXES,
        COLUMNS=COLUMNS,
        SPLITS=SPLITS,
        ITERATIONS=ITERATIONS,
        BLOCK_D=BLOCK_D,
    )


def expand_arguments(tensors: tuple[Tensor, ...], new: Tensor) -> dict:
    """Arguments of `expand_kernel` by name."""
    streams, out, after, comb = tensors
    return dict(streams=streams, out=out, after=after, comb=comb, new=new, D=streams.shape[2], BLOCK_D=BLOCK_D)


def pre_norm(
    kernels: tuple, tensors: tuple[Tensor, ...], norm: Tensor, dtype: torch.dtype = torch.bfloat16, **options
) -> tuple:
    """(normed, values, scales [D / 128, B], after, comb). tensors as `pre`'s; kernels: project and collapse_norm."""
    streams = tensors[0]
    partial = streams.new_empty((SPLITS, len(streams), COLUMNS), dtype=torch.float32)
    kernels[0][(-(-len(streams) // BLOCK_B), SPLITS)](**project_arguments(tensors, partial))
    return _collapse_norm(kernels[1], tensors, partial, norm, dtype, options)


def post_pre_norm(
    kernels: tuple,
    before: tuple[Tensor, ...],
    behind: tuple[Tensor, ...],
    norm: Tensor,
    dtype: torch.dtype = torch.bfloat16,
    dot_fp32: bool = False,
    **options,
) -> tuple:
    """(new streams, *as `pre_norm`). kernels: expand_project and collapse_norm.

    before: streams, out, after, comb of the sublayer that ends; behind: projection, scale, base of the next.
    """
    streams = before[0]
    new = torch.empty_like(streams)
    splits = expand_splits(streams.shape[2])
    partial = streams.new_empty((splits, len(streams), COLUMNS), dtype=torch.float32)
    arguments = expand_project_arguments(before, behind[0], new, partial)
    launch = {name: value for name, value in options.items() if name != "E4M3"} | {"DOT_FP32": dot_fp32}
    kernels[0][(-(-len(streams) // BLOCK_B), splits)](**arguments, num_warps=EXPAND_WARPS, **launch)
    return new, *_collapse_norm(kernels[1], (new, *behind), partial, norm, dtype, options)


def expand_splits(d: int) -> int:
    """Programs that share D in `expand_project_kernel`: the largest power of two that leaves each whole blocks."""
    blocks = d // EXPAND_BLOCK
    return min(blocks & -blocks, EXPAND_SPLITS)


def _collapse_norm(kernel, tensors: tuple[Tensor, ...], partial: Tensor, norm: Tensor, dtype, options: dict) -> tuple:
    streams = tensors[0]
    batch, _, d = streams.shape
    normed = streams.new_empty((batch, d), dtype=dtype)
    values, scales = fp8_rows(streams, batch, d)
    after = streams.new_empty((batch, COPIES), dtype=torch.float32)
    comb = streams.new_empty((batch, COPIES, COPIES), dtype=torch.float32)
    outputs = (normed, values, scales, after, comb)
    arguments = collapse_norm_arguments(tensors, partial, norm, outputs)
    kernel[(batch + -(-batch // BLOCK_T),)](**arguments, num_warps=COLLAPSE_WARPS, **options)
    return outputs


def expand_project_arguments(before: tuple[Tensor, ...], projection: Tensor, new: Tensor, partial: Tensor) -> dict:
    """Arguments of `expand_project_kernel` by name, without PDL."""
    streams, out, after, comb = before
    return dict(
        streams=streams,
        out=out,
        after=after,
        comb=comb,
        projection=projection,
        new=new,
        partial=partial,
        batch=len(streams),
        D=streams.shape[2],
        MIXES=MIXES,
        COLUMNS=COLUMNS,
        SPLITS=len(partial),
        BLOCK_B=BLOCK_B,
        BLOCK_D=EXPAND_BLOCK,
    )


def collapse_norm_arguments(tensors: tuple[Tensor, ...], partial: Tensor, norm: Tensor, outputs: tuple) -> dict:
    """Arguments of `collapse_norm_kernel` by name, without E4M3 and PDL."""
    streams, _, scale, base = tensors
    normed, values, scales, after, comb = outputs
    return dict(
        streams=streams,
        partial=partial,
        scale=scale,
        base=base,
        norm=norm,
        normed=normed,
        values=values,
        scales=scales,
        after=after,
        comb=comb,
        batch=len(streams),
        D=streams.shape[2],
        MIXES=MIXES,
        COLUMNS=COLUMNS,
        SPLITS=len(partial),
        ITERATIONS=ITERATIONS,
        BLOCK_D=power_of_two(streams.shape[2]),
        BLOCK_B=BLOCK_T,
    )
