"""The built-in subject: attention of one DeepSeek-V4-Flash decode step, with a projection that may run beside it.

    side stream:   gate = x @ w                           (a projection, [B, hidden] x [hidden, 512])
    main stream:   o, lse = sparse MLA(q, caches, indices, lengths)
    joined:        y = o * silu(gate)

Servers fork such side work in capture (`overlap`), by wait_stream or by events (`sync`), and call JIT kernels that
torch.compile has never heard of (`graph_break`: a call through ctypes, which Dynamo cannot trace).
"""

import ctypes
from collections.abc import Iterable
from functools import partial

import torch

from ..kernels.sparse_mla.inputs import make_inputs
from ..kernels.sparse_mla.op import decode, tuner_of
from ..kernels.sparse_mla.pinned import pin_entry, pinned_entry
from ..kernels.sparse_mla.reference import decode_reference
from ..kernels.sparse_mla.shapes import shape_of
from ..kernels.sparse_mla.twin import decode_twin
from .step import Step

_unregistered_call = ctypes.CDLL(None).getpid
"""Stands for a server's JIT kernel that is not registered with torch: a foreign call, which costs a graph break."""


def build(
    kernel: str = "mma",
    tuning: str = "live",
    overlap: bool = False,
    sync: str = "stream",
    graph_break: str = "none",
    batch: int = 8,
    context: int = 2048,
    heads: int = 64,
    hidden: int = 1024,
    cache: str = "bf16",
    shapes: Iterable[str] = ("flash",),
    peers: Iterable[str] = (),
) -> Step:
    """The decode step on CUDA, or on a CPU without overlap. hidden: width of x; heads: query heads of this rank.

    cache: "bf16", or "fp8", the pages that DeepSeek-V4 is served with, of which the kernels have their own versions.
    shapes: names of kernels.sparse_mla.shapes: the step is of the first, the sweep times all; one with a format of its
    own ("flash bf16", "v32") has that. peers: names of measure.peers that the sweep times beside the kernels; the step
    has none of them.

    Raises ValueError naming the option.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lists = shape_of(next(iter(shapes)))
    heads, cache = lists.heads or heads, lists.cache or cache
    tuner = None if kernel in ("gluon", "auto") else tuner_of(kernel, cache)
    if overlap and device == "cpu":
        raise ValueError("overlap: true; a CPU has no streams, allowed here: false")
    weight = torch.randn(hidden, 512, generator=torch.Generator().manual_seed(1)).to(device, torch.bfloat16)
    weight /= hidden**0.5
    first = make_inputs(0, batch=batch, heads=heads, device=device, cache=cache, **lists.inputs(context))
    side = torch.cuda.Stream() if overlap else None

    def inputs(seed: int) -> tuple:
        new = make_inputs(seed, batch=batch, heads=heads, device=device, cache=cache, **lists.inputs(context))
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, hidden, generator=generator).to(device, torch.bfloat16)
        return (x, new.q, new.window_indices, new.window_lengths, new.extra_indices, new.extra_lengths)

    def attend(function, q, window_indices, window_lengths, extra_indices, extra_lengths):
        return function(
            q,
            first.window_cache,
            window_indices,
            window_lengths,
            first.extra_cache,
            extra_indices,
            extra_lengths,
            first.sink,
            first.scale,
        )

    def step_with(attention):
        def step(x, q, *selection):
            if graph_break == "before":
                _unregistered_call()
            gate = None
            if overlap:
                main = torch.cuda.current_stream()
                if sync == "stream":
                    side.wait_stream(main)
                else:
                    side.wait_event(main.record_event())
                if graph_break == "after_fork":
                    _unregistered_call()
                with torch.cuda.stream(side):
                    gate = x @ weight
            else:
                if graph_break == "after_fork":
                    _unregistered_call()
                gate = x @ weight
            if graph_break == "between":
                _unregistered_call()
            out, lse = attend(attention, q, *selection)
            if overlap:
                if sync == "stream":
                    main.wait_stream(side)
                else:
                    main.wait_event(side.record_event())
            return out * torch.nn.functional.silu(gate)[:, None, :], lse

        return step

    def reference(x, q, *selection):
        out, lse = attend(decode_reference, q, *selection)
        return out * torch.nn.functional.silu(x.double() @ weight.double())[:, None, :], lse

    # bf16 rounds attention, gate and product once each: 3 x 2^-8 at most, relative to the largest output.
    tolerance = [1.2e-2, 1e-2]
    common = {"make_inputs": inputs, "reference": reference, "tolerance": tolerance}
    if tuner and tuning == "pinned" and device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        pin_entry(tuner, pinned_entry(kernel, major * 10 + minor, heads, batch, cache))
    return Step(
        fn=step_with(partial(decode, kernel=kernel)),
        twin=Step(fn=step_with(decode_twin), **common),
        kernels={tuner.base_fn.__name__: tuner} if tuner else {},
        **common,
    )
