"""The configuration that was really in force, read back from the modules that use it, not from variables."""

import os
import sys

from ..records.settings import settings_in


def read_back(given: dict) -> dict:
    """What torch and triton use now. Modules that are not loaded are not loaded by asking."""
    import torch
    import triton

    facts = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "triton_cache_files_at_start": given.get("caches", {}).get("triton"),
        "inductor_cache_files_at_start": given.get("caches", {}).get("inductor"),
        "suspect_variables": settings_in(os.environ),
        "interpret": triton.knobs.runtime.interpret,
        "autotuning_cache": triton.knobs.autotuning.cache,
    }
    if torch.cuda.is_initialized():
        facts["allocator"] = torch.cuda.memory.get_allocator_backend()
        facts["trees_manager"] = trees_manager(torch.cuda.current_device())
    inductor = sys.modules.get("torch._inductor.config")
    if inductor:
        facts["inductor"] = {
            "triton.cudagraphs": inductor.triton.cudagraphs,
            "max_autotune": inductor.max_autotune,
            "autotune_pointwise": inductor.triton.autotune_pointwise,
        }
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo:
        counters = dynamo.counters
        facts["graph_breaks"] = sum(counters["graph_break"].values())
        facts["graph_break_reasons"] = [text[:300] for text in counters["graph_break"]][:8]
        facts["unique_graphs"] = counters["stats"]["unique_graphs"]
        facts["cudagraph_skips"] = counters["inductor"]["cudagraph_skips"]
    return facts


def trees_manager(device: int) -> bool:
    """Whether Inductor's cudagraph trees are active on the device: they record or replay graphs of their own."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return False
    containers = trees.get_obj(trees.local, "tree_manager_containers")
    return device in containers and containers[device].tree_manager is not None
