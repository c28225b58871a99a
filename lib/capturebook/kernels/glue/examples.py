"""Real calls of the glue's kernels, for those who compile them without launching them: the build check."""

import torch
import triton

from ..sparse_mla.examples import Example
from . import launch, launch_rows
from .collapse import collapse_kernel
from .entry import entry_kernel
from .expand import expand_kernel
from .inputs import make_inputs, make_layer
from .out_heads import out_heads_kernel
from .project import project_kernel
from .q_heads import q_heads_kernel
from .qkv import qkv_kernel
from .quantise_rows import quantise_kernel
from .reference import COPIES
from .swiglu_rows import swiglu_kernel

BATCH = 64


def examples(sm: int) -> list[Example]:
    """Each kernel for 64 tokens; none has another configuration than the one that counts as pinned."""
    found = []
    for kernel, arguments, warps in (*_mhc(), *_rows()):
        told = {"E4M3": sm >= 89, "PDL": sm >= 90, "DOT_FP32": False}
        names = {parameter.name for parameter in kernel.params}
        arguments = arguments | {name: value for name, value in told.items() if name in names}
        config = triton.Config({}, num_warps=warps)
        found.append(Example(f"{kernel.__name__} batch={BATCH}", kernel, config, arguments, True))
    return found


def _mhc() -> list[tuple]:
    """(kernel, arguments, warps) of mHC: as the chain has them, and `mhc_post`."""
    *tensors, out = make_inputs(0, BATCH)
    streams, d = tensors[0], out.shape[1]
    after, comb, norm = torch.empty(BATCH, COPIES), torch.empty(BATCH, COPIES, COPIES), torch.empty(d)
    partial = torch.empty(launch.splits_of(d), BATCH, launch.COLUMNS)
    before, outputs = (streams, out, after, comb), (out, *launch_rows.fp8_rows(out, BATCH, d), after, comb)
    return [
        (project_kernel, launch.project_arguments(before, tensors[1], streams, partial), launch.PROJECT_WARPS),
        (collapse_kernel, launch.collapse_arguments(tensors, partial, norm, outputs), launch.collapse_warps(d)),
        (expand_kernel, launch.expand_arguments(before, streams), 4),
    ]


def _rows() -> list[tuple]:
    """(kernel, arguments, warps) of the rest."""
    layer = make_layer(0, BATCH)
    table, positions, slots = layer["table"], layer["positions"], layer["slots"]
    q, out, latent, x = layer["q"], layer["attended"], layer["latent"], layer["gate_up"]

    def fp8(rows: int, d: int):
        return launch_rows.fp8_rows(latent, rows, d)

    stored = (table, positions, layer["cache"], slots)
    normed = torch.empty(BATCH, 1024, dtype=torch.bfloat16)
    arguments = [
        (qkv_kernel, launch_rows.qkv_arguments((latent, *layer["norms"], *stored), normed, *fp8(BATCH, 1024))),
        (entry_kernel, launch_rows.entry_arguments((torch.empty(BATCH, 512), layer["norms"][1], *stored))),
        (q_heads_kernel, launch_rows.q_heads_arguments(q, table, positions, q)),
        (
            out_heads_kernel,
            launch_rows.out_heads_arguments(out, table, positions, out.shape[1], *fp8(BATCH, out[0].numel())),
        ),
        (quantise_kernel, launch_rows.quantise_arguments(x, *fp8(*x.shape))),
        (swiglu_kernel, launch_rows.swiglu_arguments(x, 10.0, *fp8(BATCH, x.shape[1] // 2))),
    ]
    return [(kernel, given, 4) for kernel, given in arguments]
