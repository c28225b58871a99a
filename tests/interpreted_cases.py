"""Runs the sparse MLA kernels under Triton's interpreter and prints their errors as JSON; a process of its own.

Run by test_kernels_interpret.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated.
"""

import json
import sys

import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.interpret import interpret
from capturebook.kernels.sparse_mla.launch import split_count
from capturebook.kernels.sparse_mla.pinned import pinned_config
from capturebook.kernels.sparse_mla.reference import lse_error
from kernel_cases import EMPTY_ROWS, edge_inputs

SMALL = dict(batch=2, context=256, window=40, topk=72, holes=0.1)
CASES = {
    "random": lambda: make_inputs(1, heads=8, **SMALL),
    "peaked": lambda: make_inputs(2, heads=8, kind="peaked", **SMALL),
    "sink": lambda: make_inputs(3, heads=8, kind="sink", **SMALL),
    "one split": lambda: make_inputs(4, heads=8, batch=2, context=128, window=16, topk=32),
    "edges": lambda: edge_inputs(heads=8),
    "64 heads": lambda: make_inputs(5, heads=64, batch=17, context=64, window=16, topk=16),
}
"""The last is for the tensor-core kernel's larger tile of heads, which a batch above 16 is pinned to."""


def measure(kernel: str, case: str) -> dict:
    inputs = CASES[case]()
    batch, heads = inputs.q.shape[:2]
    config = pinned_config(kernel, 90, heads, batch)
    out, lse = interpret(kernel, inputs.tensors(), inputs.scale, config)
    want, want_lse = decode_reference(*inputs.args())
    width = inputs.window_indices.shape[1] + inputs.extra_indices.shape[1]
    return {
        "error": error(out, want),
        "lse_error": lse_error(lse, want_lse),
        "empty": float(out[EMPTY_ROWS].abs().max()) if case == "edges" else 0.0,
        "splits": split_count(kernel, batch, heads, width),
        "block_h": config.kwargs.get("BLOCK_H", 1),
    }


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN: outputs, partial results
    assert torch.empty(1).isnan().all()
    json.dump({name: measure(*name.split("/")) for name in sys.argv[1:]}, sys.stdout)
