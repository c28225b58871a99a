"""Real calls of every kernel, for those who compile it without launching it: the build check and the notebooks."""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from .arguments import reads
from .combine import combine_kernel
from .gluon_plan import plan
from .inputs import make_inputs
from .launch import HEAD_DIM, combine_arguments, constants_of, main_arguments, split_count
from .op import tuner_of
from .pinned import pinned_config
from .shapes import SHAPES as LISTS

SHAPES = (("mma", 64, 8), ("mma", 64, 128), ("mma", 8, 8), ("simt", 64, 8))
"""(kernel, heads, batch): split and whole lists, heads with and without a whole tile. `simt` compiles alike for all."""


@dataclass(frozen=True)
class Example:
    """One kernel with one configuration and the arguments of a real launch.

    `args` has every parameter by name, constexprs and those of the configuration included, tensors on the CPU: what
    the kernel's own binder specialises on (dtype, divisible by 16, equal to 1) is as it is on a GPU.
    """

    name: str
    kernel: Any  # triton.runtime.JITFunction (its interpreted twin under TRITON_INTERPRET=1)
    config: triton.Config
    args: dict[str, Any]
    pinned: bool  # what `pinned_config` gives on this architecture for this shape


def examples_fp8(sm: int) -> list[Example]:
    """As `examples`, of the kernels that read an fp8 cache: V4's pages, and V3.2's tokens."""
    v32 = [example for example in examples(sm, "v32") if example.kernel is not combine_kernel]
    return examples(sm, "fp8") + v32


def examples(sm: int, cache: str = "bf16") -> list[Example]:
    """Every kernel, shape and configuration on one architecture (90 for sm_90), too large ones included.

    Those in Gluon are there for sm_90 alone: elsewhere their wgmma would abort the compiler. Raises ValueError for an
    architecture without pinned configurations.
    """
    found = []
    for kernel, heads, batch in SHAPES:
        if not reads(kernel, cache):
            continue
        autotuner = tuner_of(kernel, cache)
        pinned = pinned_config(kernel, sm, heads, batch, cache)
        args = _main_args(kernel, heads, batch, cache) | constants_of(kernel, cache, sm)
        for config in autotuner.configs:
            if config.kwargs.get("BLOCK_H", 0) >= max(2 * heads, 17):
                continue  # never tried: see mma.prune
            name = f"{autotuner.base_fn.__name__} heads={heads} batch={batch}"
            found.append(Example(name, autotuner.fn, config, args | config.kwargs, config == pinned))
    for batch, splits in ((8, 4), (1, 20)):  # unrolled, and as a tile
        partial, partial_lse = torch.empty(batch, splits, 64, HEAD_DIM), torch.empty(batch, splits, 64)
        found.append(_combine(f"combine_kernel heads=64 batch={batch}", sm >= 90, partial, partial_lse))
    return found + (_gluon_examples(cache) if sm == 90 and reads("gluon", cache) else [])


def _gluon_examples(cache: str) -> list[Example]:
    """Split lists of each kernel, whole ones of those in tiles of 64 heads, and the combine of their parts in fp16."""
    found = []
    for batch, extra in ((1, 64), (8, 512), (32, 512), (128, 512)):
        inputs = make_inputs(0, batch, 64, 512, topk=extra, window_slots=256, extra_slots=256, cache=cache)
        chosen = plan(batch, 64, *(lists.shape[1] for lists in (inputs.window_indices, inputs.extra_indices)), cache)
        results = chosen.results(inputs.q)
        args = chosen.arguments(inputs.tensors(), results, inputs.scale)
        name = f"{chosen.kernel.__name__} heads=64 batch={batch}"
        found.append(Example(name, chosen.kernel, chosen.config, args | chosen.config.kwargs, True))
        if chosen.splits > 1 and results[0].dtype == torch.float16:
            found.append(_combine(f"combine_kernel heads=64 batch={batch}, fp16 parts", True, *results))
    return found


def _main_args(kernel: str, heads: int, batch: int, cache: str) -> dict:
    lists = LISTS["v32" if cache == "v32" else "flash"].inputs(8192)
    inputs = make_inputs(0, batch, heads, window_slots=256, extra_slots=256, cache=cache, **lists)
    splits = split_count(kernel, batch, heads, inputs.window_indices.shape[1] + inputs.extra_indices.shape[1])
    out = torch.empty(batch, splits, heads, HEAD_DIM, dtype=torch.bfloat16 if splits == 1 else torch.float32)
    lse = torch.empty(batch, splits, heads)
    return main_arguments(inputs.tensors(), out, lse, inputs.scale, splits == 1)


def _combine(name: str, pdl: bool, partial, partial_lse, units=None) -> Example:
    batch, splits, heads, d = partial.shape
    out, lse = torch.empty(batch, heads, d, dtype=torch.bfloat16), torch.empty(batch, heads)
    args = combine_arguments(partial, partial_lse, torch.empty(heads), out, lse, splits, pdl, units)
    return Example(name, combine_kernel, triton.Config({}, num_warps=args["GROUP"]), args, True)
