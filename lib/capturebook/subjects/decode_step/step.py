"""Layers of DeepSeek-V4-Flash as one decode step: a subject whose every part can be exchanged by an option."""

from functools import partial

import torch

from ...kernels.indexer import pinned as indexer_pinned
from ...kernels.sparse_mla.op import tuner_of
from ...kernels.sparse_mla.pinned import pin_entry, pinned_entry
from ..step import Step
from .lanes import Lanes
from .model import Stack, stack
from .ops import Ops, torch_ops, triton_ops
from .reference import errors
from .shapes import KINDS, SIZES, Shape
from .state import make_requests, make_state
from .weights import draw

LANES = ("compressor", "indexer", "shared")
CALLS = 8
"""Over so many calls positions advance by one token each; then they begin again, as requests that end and start do."""

TOLERANCE = 2e-2
"""Of a layer's streams and of what it chose: bf16 rounds some ten times from a layer's input to its output."""

FP8_TOLERANCE = 4e-2
"""With experts in fp8: a row that is off by bf16's rounding may be off by e4m3's, 2 ** -4 of a value, where it is cut
to that, and is so in one value of ten or so."""

UNTUNED = ("gluon", "auto")
"""Kernels of `sparse_mla.decode` that are launched as they are pinned."""

LISTS = ("window_width", "extra_width")
"""Keys of the attention's autotuners that differ between kinds of layer."""

KERNEL_HEADS = 64
"""Heads that a stock server's attention kernel is given, whatever the rank has."""


def build(
    layers: list[str] = KINDS,
    size: str = "",
    tp: int = 8,
    kernel: str = "mma",
    tuning: str = "live",
    padded: bool = False,
    indexer: str = "bounded",
    glue: str = "eager",
    routing: str = "score",
    router: str = "torch",
    experts: str = "bf16",
    cache: str = "bf16",
    keys: str = "bf16",
    overlap: bool = False,
    sync: str = "stream",
    graph_break: str = "none",
    batch: int = 8,
    context: int = 8192,
    max_context: int = 131072,
) -> Step:
    """One decode step of these layers on one rank of `tp`, without communication, on CUDA or on a CPU.

    layers: of "swa", "csa", "hca", in order. size: "flash" or "small"; not given, small on a CPU. kernel: of the
    attention, as `sparse_mla.decode` takes it; padded: it is given 64 heads where the rank has fewer. indexer:
    "bounded", "stock" or "torch"; glue: "eager", "compiled" or "fused"; router: "torch" or "fused" (see `ops`).
    routing: "score", or "hash" by token. experts, cache, keys: "bf16" or "fp8"; other weights are bf16, all of them
    random. overlap: side streams for the compressor, the indexer and the shared expert, forked and joined by `sync`,
    with a `graph_break` for torch.compile (see `Lanes`). context: what a request has room for in the caches;
    max_context: in its page table and lists. tuning: of the attention kernel, "live" or "pinned" (see `tune`).
    Outputs are each layer's streams and what it chose; they are judged by `reference.errors`.
    Raises ValueError naming the option.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = size or ("flash" if device == "cuda" else "small")
    if size not in SIZES:
        raise ValueError(f"size: {size!r}; allowed: {', '.join(SIZES)}")
    if routing not in ("score", "hash"):
        raise ValueError(f"routing: {routing!r}; allowed: score, hash")
    for name, given in (("cache", cache), ("keys", keys), ("experts", experts)):
        if given not in ("bf16", "fp8"):
            raise ValueError(f"{name}: {given!r}; allowed: bf16, fp8")
    if not 256 <= context <= max_context:
        raise ValueError(f"context: {context}; allowed: 256 to max_context, {max_context}")
    if overlap and device == "cpu":
        raise ValueError("overlap: true; a CPU has no streams, allowed here: false")
    unknown = [kind for kind in layers if kind not in KINDS]
    if unknown or not layers:
        raise ValueError(f"layers: {unknown[0] if unknown else layers!r}; allowed: some of {', '.join(KINDS)}")
    tuner = None if kernel in UNTUNED else tuner_of(kernel, cache)
    shape = SIZES[size].rank(tp)
    ops = triton_ops(kernel, indexer, glue, router)
    lanes = Lanes(LANES if overlap else (), sync, graph_break)
    sizes = (size, tp, routing, experts, cache, keys, batch, context, max_context, device)
    made = assemble(list(layers), *sizes, lanes, padded)
    kernels = {**({tuner.base_fn.__name__: tuner} if tuner else {}), **indexer_pinned.TUNERS.get(indexer, {})}
    if device == "cuda":
        heads = KERNEL_HEADS if padded else shape.heads
        tune(tuner and pinned_entry(kernel, capability(), heads, batch, cache), tuner, indexer, keys, tuning)
    twin = torch_ops("eager" if glue == "fused" else glue)
    tolerance = FP8_TOLERANCE if experts == "fp8" else TOLERANCE
    return _step(made, ops, twin, tolerance, shape, batch, context, device, kernels)


def tune(entry: dict | None, tuner, indexer: str, keys: str, tuning: str) -> None:
    """Leaves the autotuners of a step as `tuning` says: "live" is the attention kernel's alone, tuned once.

    A process that starts cold compiles each configuration of each tuning one after the other, 5 s and more each on a
    busy host: with the bounded indexer's nine, and the attention's anew for the lists of every kind of layer, a probe
    of three layers did not end within a minute. So the first layer's choice serves all, and the indexer is pinned.
    """
    if indexer in indexer_pinned.TUNERS:
        indexer_pinned.pin(indexer, capability(), keys)
    if tuner and tuning == "pinned":
        pin_entry(tuner, entry)
    elif tuner:
        tuner.keys = [key for key in tuner.keys if key not in LISTS]


def capability() -> int:
    """Of the GPU: 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def assemble(
    kinds: list[str],
    size: str,
    tp: int,
    routing: str,
    experts: str,
    cache: str,
    keys: str,
    batch: int,
    context: int,
    max_context: int,
    device: str,
    lanes: Lanes | None = None,
    padded: bool = False,
    weights: list | None = None,
) -> Stack:
    """Layers of these kinds with random weights and full caches; options as `build` takes them, unchecked.

    weights: of a stack of the same layers, whose drawing is spared.
    """
    shape, bf16 = SIZES[size].rank(tp), torch.bfloat16
    requests = make_requests(batch, context, max_context, 0, device)
    numbered = list(enumerate(kinds))
    weights = weights or [draw(shape, kind, routing, number, device, bf16, experts) for number, kind in numbered]
    states = [make_state(shape, kind, batch, context, n, device, bf16, cache, keys) for n, kind in numbered]
    return stack(shape, kinds, weights, states, requests, context, lanes, KERNEL_HEADS if padded else 0)


def _step(
    made: Stack, ops: Ops, twin: Ops, tolerance: float, shape: Shape, batch: int, context: int, device: str, kernels
) -> Step:
    start, positions = starts(batch, context).to(device), made.requests.positions
    positions.copy_(start)

    def inputs(seed: int) -> tuple:
        generator = torch.Generator().manual_seed(seed)
        streams = torch.randn(batch, 4, shape.hidden, generator=generator).to(device, torch.bfloat16)
        return streams, torch.randint(shape.vocabulary, (batch,), generator=generator).to(device)

    def check(inputs: tuple, outputs: dict) -> bool:
        return max(errors(made, *inputs, outputs).values()) <= tolerance

    common = {
        "make_inputs": inputs,
        "state": made.state,
        "advance": lambda i: positions.copy_(start + i % CALLS),
        "check": check,
    }
    return Step(
        fn=partial(made, ops),
        twin=Step(fn=partial(made, twin), **common),
        kernels=kernels,
        **common,
    )


def starts(batch: int, context: int) -> torch.Tensor:
    """[B] int32: positions of the first call, 7/8 of the context and more, the first request's two tokens before the
    end of a window of 128, which ends one of 4 too."""
    generator = torch.Generator().manual_seed(0)
    last = context - CALLS
    positions = last - torch.randint(0, context // 8, (batch,), generator=generator)
    positions[0] = (last - 126) // 128 * 128 + 126
    return positions.int()
