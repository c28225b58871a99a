"""Real calls of the indexer's kernels, for those who compile them without launching them: the build check."""

import torch

from ..sparse_mla.examples import Example
from .inputs import make_inputs
from .launch import scores_arguments, selection_arguments
from .pinned import TUNERS, pinned_config

BATCHES = (8, 64)


def examples(sm: int) -> list[Example]:
    """Every kernel and configuration on one architecture (90 for sm_90).

    Raises ValueError for an architecture without pinned configurations.
    """
    found = []
    for kernel, tuners in TUNERS.items():
        for batch in BATCHES if kernel == "bounded" else BATCHES[:1]:
            for name, tuner in tuners.items():
                args, pinned = _arguments(kernel, name, batch), pinned_config(name, sm)
                found += [
                    Example(f"{name} batch={batch}", tuner.fn, config, args | config.kwargs, config == pinned)
                    for config in tuner.configs
                ]
    return found


def _arguments(kernel: str, name: str, batch: int) -> dict:
    inputs = make_inputs(0, batch, context=1024, max_context=8192)
    scores = torch.empty(batch, inputs.page_table.shape[1] * inputs.keys.shape[1])
    if name == "select_kernel":
        slots = torch.empty(batch, 512, dtype=torch.int32)
        return selection_arguments(scores, inputs.page_table, inputs.lengths, slots)
    return scores_arguments(kernel, inputs.args(), scores) | {"DOT_FP32": False}
