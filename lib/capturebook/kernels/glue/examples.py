"""Real calls of mHC's kernels, for those who compile them without launching them: the build check."""

import torch
import triton

from ..sparse_mla.examples import Example
from .inputs import make_inputs
from .launch import COLUMNS, SPLITS, collapse_arguments, expand_arguments, project_arguments
from .mhc import collapse_kernel, expand_kernel, project_kernel
from .reference import COPIES


def examples(sm: int) -> list[Example]:
    """Each kernel for 64 tokens; it has no other configuration than Triton's default, which counts as pinned."""
    *tensors, out = make_inputs(0, batch=64)
    streams = tensors[0]
    partial = torch.empty(SPLITS, 64, COLUMNS)
    after, comb = torch.empty(64, COPIES), torch.empty(64, COPIES, COPIES)
    calls = (
        (project_kernel, project_arguments(tensors, partial)),
        (collapse_kernel, collapse_arguments(tensors, partial, out, after, comb)),
        (expand_kernel, expand_arguments((streams, out, after, comb), streams)),
    )
    config = triton.Config({}, num_warps=4)
    return [Example(f"{kernel.__name__} batch=64", kernel, config, args, True) for kernel, args in calls]
