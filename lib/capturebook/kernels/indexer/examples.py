"""Real calls of the indexer's kernels, for those who compile them without launching them: the build check."""

import torch

from ..sparse_mla.examples import Example
from .formats import PAGE
from .inputs import make_inputs
from .launch import scores_arguments, selection_arguments
from .pinned import TUNERS, pinned_config

CALLS = {
    "padded_scores_kernel": ((8, "bf16"), (8, "fp8")),
    "bounded_scores_kernel": ((8, "bf16"), (64, "bf16"), (64, "fp8")),
    "select_kernel": ((64, "bf16"),),
}
"""(batch, format of the keys) for each kernel; the selection compiles alike for all."""


def examples(sm: int) -> list[Example]:
    """Every kernel and configuration on one architecture (90 for sm_90).

    Raises ValueError for an architecture without pinned configurations.
    """
    found = []
    for kernel, tuners in TUNERS.items():
        for name, tuner in tuners.items():
            for batch, key_format in CALLS[name]:
                args = _arguments(kernel, name, batch, key_format, sm)
                pinned = pinned_config(name, sm, key_format)
                called = f"{name} batch={batch}" + (" fp8" if key_format == "fp8" else "")
                found += [
                    Example(called, tuner.fn, config, args | config.kwargs, config == pinned)
                    for config in tuner.configs
                ]
    return found


def _arguments(kernel: str, name: str, batch: int, key_format: str, sm: int) -> dict:
    inputs = make_inputs(0, batch, context=1024, max_context=8192, key_format=key_format)
    scores = torch.empty(batch, inputs.page_table.shape[1] * PAGE)
    if name == "select_kernel":
        slots = torch.empty(batch, 512, dtype=torch.int32)
        return selection_arguments(scores, inputs.page_table, inputs.lengths, slots) | {"PDL": sm >= 90}
    told = {"DOT_FP32": False, "E4M3": sm >= 89} | ({"PDL": sm >= 90} if kernel == "bounded" else {})
    return scores_arguments(kernel, inputs.args(), scores) | told
