"""Runs the sparse MLA kernels under Triton's interpreter and prints their errors as JSON; a process of its own.

Run by test_kernels_interpret.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated.
"""

import json
import sys

import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.combine import combine_kernel
from capturebook.kernels.sparse_mla.formats import format_of
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.interpret import interpret
from capturebook.kernels.sparse_mla.launch import merge, split_count
from capturebook.kernels.sparse_mla.pinned import pinned_config
from capturebook.kernels.sparse_mla.reference import lse_error
from kernel_cases import EMPTY_ROWS, LARGEST_GROUP, LEAST_GROUP, edge_inputs, scale_end_inputs, to_fp8, to_v32

SMALL = dict(batch=2, context=256, window=40, topk=72, holes=0.1)
V32 = dict(batch=2, context=256, window=0, topk=150, ratio=1, holes=0.1)
CASES = {
    "random": lambda heads: make_inputs(1, heads=heads, **SMALL),
    "peaked": lambda heads: make_inputs(2, heads=heads, kind="peaked", **SMALL),
    "sink": lambda heads: make_inputs(3, heads=heads, kind="sink", **SMALL),
    "one split": lambda heads: make_inputs(4, heads=heads, batch=2, context=128, window=16, topk=32),
    "many splits": lambda heads: make_inputs(
        6, heads=heads, batch=1, context=8192, window=40, topk=1100, window_slots=256
    ),
    "edges": lambda heads: edge_inputs(heads=heads),
    "edges, one split": lambda heads: edge_inputs(heads=heads),
    "32 heads": lambda heads: make_inputs(5, heads=32, batch=17, context=64, window=16, topk=16),
    "fp8 random": lambda heads: make_inputs(1, heads=heads, cache="fp8", **SMALL),
    "fp8 peaked": lambda heads: make_inputs(2, heads=heads, kind="peaked", cache="fp8", **SMALL),
    "fp8 sink": lambda heads: make_inputs(3, heads=heads, kind="sink", cache="fp8", **SMALL),
    "fp8 one split": lambda heads: make_inputs(4, heads=heads, batch=2, context=128, window=16, topk=32, cache="fp8"),
    "fp8 edges": lambda heads: to_fp8(edge_inputs(heads=heads)),
    "fp8 edges, one split": lambda heads: to_fp8(edge_inputs(heads=heads)),
    "fp8 edges, pages of 2": lambda heads: to_fp8(edge_inputs(heads=heads), 64, 2),
    "fp8 edges, sm_80": lambda heads: to_fp8(edge_inputs(heads=heads)),
    "fp8 scales": lambda heads: scale_end_inputs(heads),
    "fp8 scales, sm_80": lambda heads: scale_end_inputs(heads),
    "v32 random": lambda heads: make_inputs(1, heads=heads, cache="v32", **V32),
    "v32 edges": lambda heads: to_v32(edge_inputs(heads=heads)),
    "v32 edges, one split": lambda heads: to_v32(edge_inputs(heads=heads)),
}
""" "32 heads" is for the tensor-core kernel's larger tile of heads, which they are pinned to in bf16; "sm_80" for
the conversion of e4m3 by integer operations."""


def head_count(kernel: str, case: str) -> int:
    """Of the tensor-core kernel the fewest it is pinned for. The other one has a program for each head and no tile of
    them: two heads show how it steps, and the edges take four for their sinks and one for a plain one."""
    return 8 if kernel == "mma" else 5 if "edges" in case else 2


def measure_combine(case: str) -> dict:
    """Parts in fp16, each 64 columns in a unit of their own, of "n splits" of which the first has no entry.

    The last request has none at all, and the sinks of two heads are at their limits.
    """
    splits, generator = int(case.split()[0]), torch.Generator().manual_seed(7)
    units = torch.exp2(torch.randint(-30, 30, (3, splits, 6, 8), generator=generator).float())
    parts = torch.randn(3, splits, 6, 512, generator=generator).half()
    part_lse, sink = torch.randn(3, splits, 6, generator=generator), torch.randn(6, generator=generator)
    part_lse[:, 0], parts[:, 0], part_lse[2], parts[2] = -torch.inf, 0.0, -torch.inf, 0.0
    sink[0], sink[1] = torch.inf, -torch.inf
    out, lse = torch.empty(3, 6, 512), torch.empty(3, 6)
    merge(combine_kernel, parts, part_lse, sink, out, lse, False, units)
    want_lse = part_lse.double().logsumexp(1)
    weight = torch.exp(part_lse.double() - torch.logaddexp(want_lse, sink.double())[:, None])
    weight = weight.masked_fill(part_lse == -torch.inf, 0.0)
    values = (parts.double().unflatten(-1, (8, 64)) * units[..., None]).flatten(-2)
    want = (values * weight[..., None]).sum(1)
    groups = [slice(start, start + 64) for start in range(0, 512, 64)]
    return {
        "error": max(error(out[:, :, group], want[:, :, group]) for group in groups),
        "lse_error": lse_error(lse, want_lse),
        "empty": float(max(out[2].abs().max(), out[:, 0].abs().max())),
        "splits": splits,
    }


def measure(kernel: str, case: str) -> dict:
    if kernel == "combine":
        return measure_combine(case)
    inputs = CASES[case](head_count(kernel, case))
    batch, heads = inputs.q.shape[:2]
    sm = 80 if "sm_80" in case else 90
    config = pinned_config(kernel, sm, max(heads, 8), batch, format_of(inputs.window_cache))
    width = inputs.window_indices.shape[1] + inputs.extra_indices.shape[1]
    entries = width if "one split" in case else 0
    out, lse = interpret(kernel, inputs.tensors(), inputs.scale, config, sm, entries)
    want, want_lse = decode_reference(*inputs.args())
    groups = (LEAST_GROUP, LARGEST_GROUP, slice(448, 512)) if "scales" in case else (slice(None),)
    return {
        "error": max(error(out[:, :, group], want[:, :, group]) for group in groups),
        "lse_error": lse_error(lse, want_lse),
        "empty": float(out[EMPTY_ROWS].abs().max()) if "edges" in case else 0.0,
        "splits": split_count(kernel, batch, heads, width, entries),
        "block_h": config.kwargs.get("BLOCK_H", 1),
    }


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN: outputs, partial results
    assert torch.empty(1).isnan().all()
    json.dump({name: measure(*name.split("/")) for name in sys.argv[1:]}, sys.stdout)
