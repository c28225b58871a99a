"""The table of what a layer calls, by the options of a step: attention, indexer, routing, experts, glue."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch

from ...kernels.indexer import select, select_twin
from ...kernels.routing import combine, combine_reference, route, route_reference
from ...kernels.sparse_mla import decode, decode_twin
from . import glue as eager
from . import glue_fused as fused
from .experts import grouped

GLUE = (
    "enter",
    "between",
    "leave",
    "latents",
    "compress",
    "compress_keys",
    "heads_in",
    "heads_out",
    "index_heads",
    "swiglu",
)
"""The functions of `glue`, each a field of Ops. What they are given and give is said there."""

INDEXERS = ("bounded", "stock", "torch")
"""By the lengths; over the padded width in Triton, with torch's topk; over the padded width in torch ops, what servers
fall back to."""

ROUTERS = ("torch", "fused")
"""Routing and the sum of experts: torch ops, or the operators of `kernels.routing`."""

GLUES = ("eager", "compiled", "fused")
"""Torch ops; each function of them under torch.compile by itself; the operators of `kernels.glue`, as far as there is
one (see `glue_fused`)."""


@dataclass(frozen=True)
class Ops:
    """attend, select: as `sparse_mla.decode` and `indexer.select`; experts: as `experts.grouped`; route, combine: as in
    `kernels.routing`. The rest: `glue`."""

    attend: Callable
    select: Callable
    experts: Callable = grouped
    route: Callable = route_reference
    combine: Callable = combine_reference
    enter: Callable = eager.enter
    between: Callable = eager.between
    leave: Callable = eager.leave
    latents: Callable = eager.latents
    compress: Callable = eager.compress
    compress_keys: Callable = eager.compress_keys
    heads_in: Callable = eager.heads_in
    heads_out: Callable = eager.heads_out
    index_heads: Callable = eager.index_heads
    swiglu: Callable = eager.swiglu


@cache
def compiled(name: str) -> Callable:
    """A function of `glue` under torch.compile, once a process."""
    return torch.compile(getattr(eager, name), fullgraph=True, dynamic=False)


def with_glue(ops: Ops, glue: str) -> Ops:
    """The same with this glue. Raises ValueError."""
    if glue not in GLUES:
        raise ValueError(f"glue: {glue!r}; allowed: {', '.join(GLUES)}")
    if glue == "compiled":
        return replace(ops, **{name: compiled(name) for name in GLUE})
    if glue == "fused":
        return replace(ops, **{name: getattr(fused, name) for name in GLUE if hasattr(fused, name)})
    return ops


def triton_ops(kernel: str, indexer: str, glue: str, router: str = "torch") -> Ops:
    """The operators of `kernels` (on a CPU they are torch ops); indexer, router: as in INDEXERS, ROUTERS. Raises
    ValueError."""
    for name, given, allowed in (("indexer", indexer, INDEXERS), ("router", router, ROUTERS)):
        if given not in allowed:
            raise ValueError(f"{name}: {given!r}; allowed: {', '.join(allowed)}")
    chooser = select_twin if indexer == "torch" else partial(select, kernel=indexer)
    ops = Ops(partial(decode, kernel=kernel), chooser)
    if router == "fused":
        ops = replace(ops, route=route, combine=combine)
    return with_glue(ops, glue)


def torch_ops(glue: str = "eager") -> Ops:
    """Torch ops in place of all Triton: the twin. Any sizes, bf16 or fp32."""
    return with_glue(Ops(decode_twin, select_twin), glue)
