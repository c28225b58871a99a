"""Real calls of the routing kernels, for those who compile them without launching them: the build check."""

import torch
import triton

from ..sparse_mla.examples import Example
from .op import combine_arguments, route_arguments
from .routing import mix_experts_kernel, route_kernel

BATCH, EXPERTS, ACTIVE, HIDDEN = 64, 256, 6, 4096


def examples(sm: int) -> list[Example]:
    """Routing by score and by token, and the sum, for 64 tokens; they have no configuration but Triton's default."""
    bf16 = torch.bfloat16
    logits, tokens = torch.empty(BATCH, EXPERTS, dtype=bf16), torch.empty(BATCH, dtype=torch.int64)
    ids, weights = torch.empty(BATCH, ACTIVE, dtype=torch.int64), torch.empty(BATCH, ACTIVE)
    bias, table = torch.empty(EXPERTS), torch.empty(1024, ACTIVE, dtype=torch.int32)
    rows, shared = torch.empty(BATCH * ACTIVE, HIDDEN, dtype=bf16), torch.empty(BATCH, HIDDEN, dtype=bf16)
    place = torch.empty(BATCH * ACTIVE, dtype=torch.int64)
    calls = (
        ("route_kernel score", route_kernel, route_arguments(logits, bias, None, tokens, ids, weights, 1.5)),
        ("route_kernel hash", route_kernel, route_arguments(logits, None, table, tokens, ids, weights, 1.5)),
        (
            "mix_experts_kernel",
            mix_experts_kernel,
            combine_arguments(rows, place, weights, shared, torch.empty_like(shared)),
        ),
    )
    config = triton.Config({}, num_warps=4)
    return [Example(name, kernel, config, args, True) for name, kernel, args in calls]
