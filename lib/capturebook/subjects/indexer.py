"""The indexer of one DeepSeek-V4-Flash decode step as a subject: which 512 compressed keys each request attends to.

The cache of keys, the page table and the lengths are static buffers, as in a server that captured its step: the lengths
grow in place between calls, and one graph must serve all of them.
"""

from collections.abc import Iterable
from functools import partial

import torch

from ..kernels.indexer import error, scores_reference, select, select_twin
from ..kernels.indexer.formats import HEAD_DIM
from ..kernels.indexer.inputs import make_inputs
from ..kernels.indexer.launch import HEADS, RATIO
from ..kernels.indexer.pinned import TUNERS, pin
from ..kernels.indexer.reference import TOLERANCE
from .step import Step

CALLS = 8
"""Over so many calls the lengths grow to what they may be; then they begin again, as requests that end and start do."""


def build(
    kernel: str = "bounded",
    tuning: str = "live",
    batch: int = 8,
    context: int = 8192,
    max_context: int = 131072,
    topk: int = 512,
    key_format: str | Iterable[str] = "bf16",
    lengths: str | Iterable[str] = "near",
) -> Step:
    """The indexer on CUDA, or on a CPU. context: what a request has when its lengths are grown; max_context: what its
    page table has room for; key_format: "bf16", or "fp8" in the packed pages of servers; lengths: how long requests are
    then, "near", 7/8 of the context at least, or "full". Of several formats or lengths the step has the first, the
    sweep all. The selection is judged as a set against float64 scores, so that equal scores may fall either way: see
    `kernels.indexer.error`.

    Raises ValueError naming the option.
    """
    if kernel not in TUNERS:
        raise ValueError(f"kernel: {kernel!r}; allowed: {', '.join(TUNERS)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    key_format, drawn = (one if isinstance(one, str) else next(iter(one)) for one in (key_format, lengths))
    held = make_inputs(0, batch, context, max_context, device, key_format=key_format, lengths=drawn)
    grown, lengths = held.lengths.clone(), held.lengths
    growth = max(1, context // RATIO // 64)

    def inputs(seed: int) -> tuple:
        generator = torch.Generator().manual_seed(seed)
        q = torch.randn(batch, HEADS, HEAD_DIM, generator=generator).to(device, torch.bfloat16)
        weights = torch.randn(batch, HEADS, generator=generator) * (HEADS * HEAD_DIM) ** -0.5
        return q, weights.to(device)

    def advance(i: int) -> None:
        """A replay stands for many steps: 1/64 of the context is added to each request."""
        torch.clamp(grown - growth * (CALLS - 1 - i % CALLS), min=0, out=lengths)

    def step_with(function):
        return lambda q, weights: function(q, weights, held.keys, held.page_table, lengths, topk)

    def check(inputs: tuple, slots) -> bool:
        scores = scores_reference(*inputs, held.keys, held.page_table, lengths)
        return error(slots, scores, held.page_table, lengths) <= TOLERANCE

    if tuning == "pinned" and device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        pin(kernel, major * 10 + minor, key_format)
    common = {"make_inputs": inputs, "state": lambda: {"lengths": lengths}, "advance": advance, "check": check}
    return Step(
        fn=step_with(partial(select, kernel=kernel)),
        twin=Step(fn=step_with(select_twin), **common),
        kernels=dict(TUNERS[kernel]),
        **common,
    )
