"""How mHC becomes launches: buffers, arguments, grids. Used by the operators, the interpreter and the build check.

Kernels are jitted functions, or what torch's wrap_triton makes of them. `told` is what `launch_rows.options` gives, or
what an interpreter needs in its place.
"""

import torch
from torch import Tensor

from ..sparse_mla.launch import power_of_two
from .launch_rows import fp8_rows
from .reference import COPIES, ITERATIONS, MIXES

COLUMNS = 32
"""A token's row of the projection: MIXES products, the sum of squares, and room."""

SPLITS, BLOCK_B, BLOCK_D, PROJECT_WARPS = 128, 16, 32, 4
"""A token's D is cut into 128, so that 64 tokens make 512 programs. A tile of 16 x 32 values on 4 warps has the layout
of the token's 32 weights: see `project_kernel`."""

COLLAPSE_WARPS, EXPAND_BLOCK = 8, 1024


def pre(kernels: tuple, tensors: tuple[Tensor, ...], norm: Tensor | None, dtype: torch.dtype, **told) -> tuple:
    """(collapsed, after, comb) as `mhc_pre`; with a norm (normed, values, scales [D / 128, B], after, comb).

    tensors: streams, projection, scale, base. kernels: project and collapse.
    """
    partial = _project(kernels[0], (tensors[0],) * 4, tensors[1], None, told)
    return _collapse(kernels[1], tensors, partial, norm, dtype, told)


def post_pre(
    kernels: tuple, before: tuple[Tensor, ...], behind: tuple[Tensor, ...], norm: Tensor, dtype: torch.dtype, **told
) -> tuple:
    """(new streams, *as `pre` with a norm).

    before: streams, out, after, comb of the sublayer that ends; behind: projection, scale, base of the next.
    """
    new = torch.empty_like(before[0])
    partial = _project(kernels[0], before, behind[0], new, told)
    return new, *_collapse(kernels[1], (new, *behind), partial, norm, dtype, told)


def post(expand, tensors: tuple[Tensor, ...], **told) -> Tensor:
    """New streams as `mhc_post`. tensors: streams, out, after, comb."""
    new = torch.empty_like(tensors[0])
    batch, _, d = new.shape
    expand[(batch, d // EXPAND_BLOCK)](**expand_arguments(tensors, new), **_only(told, "PDL", "launch_pdl"))
    return new


def splits_of(d: int) -> int:
    """Programs that share D in `project_kernel`: the largest power of two that leaves each whole blocks."""
    blocks = d // BLOCK_D
    return min(blocks & -blocks, SPLITS)


def _project(kernel, before: tuple[Tensor, ...], projection: Tensor, new: Tensor | None, told: dict) -> Tensor:
    streams = before[0]
    splits = splits_of(streams.shape[2])
    partial = streams.new_empty((splits, len(streams), COLUMNS), dtype=torch.float32)
    arguments = project_arguments(before, projection, new, partial)
    told = {"DOT_FP32": False} | _only(told, "PDL", "launch_pdl", "DOT_FP32")
    kernel[(-(-len(streams) // BLOCK_B), splits)](**arguments, num_warps=PROJECT_WARPS, **told)
    return partial


def _collapse(kernel, tensors: tuple[Tensor, ...], partial: Tensor, norm: Tensor | None, dtype, told: dict) -> tuple:
    streams = tensors[0]
    batch, _, d = streams.shape
    collapsed = streams.new_empty((batch, d), dtype=dtype)
    fp8 = fp8_rows(streams, batch, d) if norm is not None else ()
    after = streams.new_empty((batch, COPIES), dtype=torch.float32)
    comb = streams.new_empty((batch, COPIES, COPIES), dtype=torch.float32)
    outputs = (collapsed, *fp8, after, comb)
    arguments = collapse_arguments(tensors, partial, norm, outputs)
    told = _only(told, "E4M3", "PDL", "launch_pdl")
    kernel[(2 * batch,)](**arguments, num_warps=COLLAPSE_WARPS, **told)
    return outputs


def _only(told: dict, *names: str) -> dict:
    return {name: value for name, value in told.items() if name in names}


def project_arguments(before: tuple[Tensor, ...], projection: Tensor, new: Tensor | None, partial: Tensor) -> dict:
    """Arguments of `project_kernel` by name, without DOT_FP32 and PDL. Without `new` nothing is expanded."""
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
    """Arguments of `collapse_kernel` by name, without E4M3 and PDL; outputs as `pre` returns them."""
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
    """Arguments of `expand_kernel` by name, without PDL."""
    streams, out, after, comb = tensors
    return dict(streams=streams, out=out, after=after, comb=comb, new=new, D=streams.shape[2], BLOCK_D=EXPAND_BLOCK)
