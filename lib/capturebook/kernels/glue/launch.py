"""How mHC becomes launches: buffers, arguments, grids. Used by the operators, the interpreter and the build check."""

import torch
from torch import Tensor

from .reference import COPIES, ITERATIONS, MIXES

SPLITS, COLUMNS = 32, 32
BLOCK_B, BLOCK_K, BLOCK_D = 16, 128, 1024
"""Not tuned: a token's projection is cut into 32, so that 64 tokens make 128 programs; a stream's part is 1024 wide."""


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
