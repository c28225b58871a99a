"""The switches of the decode step as a ladder, from what a stock server runs to everything exchanged, on one stack."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial


@dataclass(frozen=True)
class Switches:
    """What of a step is exchanged; values as `subjects.decode_step.build` takes them."""

    kernel: str = "mma"
    padded: bool = False
    indexer: str = "bounded"
    glue: str = "fused"
    router: str = "torch"
    overlap: bool = False
    whole: bool = False  # torch.compile on the step itself


STOCK = Switches("simt", True, "stock", "eager")
LADDER = {
    "stock": STOCK,
    "stock, mma": replace(STOCK, kernel="mma"),
    "stock, bounded indexer": replace(STOCK, indexer="bounded"),
    "mma, bounded indexer": replace(STOCK, kernel="mma", indexer="bounded"),
    "and fused glue": Switches(padded=True),
    "and own heads only": Switches(),
    "and fused routing": Switches(router="fused"),
    "and overlap": Switches(router="fused", overlap=True),
}
"""By name; "padded" is the kernel given 64 heads where the rank has 8. "mma" is the `tl.dot` kernel."""

CHAIN = tuple(name for name in LADDER if name != "stock, bounded indexer")
"""Those that exchange one thing after the other: the stock step with the bounded indexer alone stands beside."""

AUTO = {"and fused glue, auto attention": Switches(kernel="auto", padded=True)}
"""With what `sparse_mla.decode` takes by itself (`sparse_mla.paths.path_of`): of 64 heads on sm_90 a Gluon kernel, but
for long lists of few requests; of a rank's 8 heads it takes mma, as the other rungs do."""

FALLBACK = {
    "mma, torch indexer": replace(STOCK, kernel="mma", indexer="torch"),
    "own heads only, torch indexer": Switches(indexer="torch"),
}
"""With the indexer that servers fall back to, before and after the glue is fused; asked for by name."""

COMPILED = {
    "own heads only, eager glue": Switches(glue="eager"),
    "own heads only, compiled glue": Switches(glue="compiled"),
    "own heads only, whole step compiled": Switches(glue="eager", whole=True),
    "own heads only, whole step compiled, overlap": Switches(glue="eager", overlap=True, whole=True),
    "own heads only, fused, whole step compiled": Switches(whole=True),
}
"""What `decode_compile` compares; asked for by name elsewhere, since torch.compile may take minutes of three layers.
Mode default, dynamic=False."""


RUNGS = LADDER | AUTO | FALLBACK | COMPILED
"""All that can be asked for."""


def function(stack, switches: Switches, label: Callable | None = None) -> Callable:
    """The step of a `decode_step.model.Stack` with these switches, as fn(streams, tokens).

    label(function, class) -> function: put around every operator, by its class (see `kernel_classes`).
    """
    from ..subjects.decode_step.lanes import Lanes
    from ..subjects.decode_step.ops import GLUE, triton_ops
    from ..subjects.decode_step.step import KERNEL_HEADS, LANES

    lanes = Lanes(LANES if switches.overlap else ())
    whole = padded_to(stack, KERNEL_HEADS if switches.padded else stack.layers[0].attention.shape.heads, lanes)
    ops = triton_ops(switches.kernel, switches.indexer, switches.glue, switches.router)
    if label:
        classes = {"attend": "attention", "select": "indexer", "experts": "moe", "route": "routing", "combine": "moe"}
        classes |= {**dict.fromkeys(GLUE, "glue")}
        ops = replace(ops, **{name: label(getattr(ops, name), group) for name, group in classes.items()})
    step = partial(whole, ops)
    if not switches.whole:
        return step
    import torch

    return torch.compile(step, dynamic=False)


def padded_to(stack, heads: int, lanes=None):
    """The same stack with its attention given so many heads, and with these lanes, by default its own."""
    lanes = lanes or stack.lanes
    layers = []
    for layer in stack.layers:
        attention = replace(layer.attention, lanes=lanes, padded=heads)
        layers.append(replace(layer, attention=attention, moe=replace(layer.moe, lanes=lanes)))
    return replace(stack, layers=tuple(layers), lanes=lanes)


def pin_all(heads: int, batch: int, cache: str, keys: str) -> None:
    """Leaves the autotuners of all variants their pinned configurations for this GPU. cache, keys: their formats."""
    from ..kernels.indexer import pinned as indexer_pinned
    from ..kernels.sparse_mla import pinned
    from ..kernels.sparse_mla.op import tuner_of
    from ..subjects.decode_step.step import capability

    sm = capability()
    for kernel in ("mma", "simt"):
        pinned.pin_entry(tuner_of(kernel, cache), pinned.pinned_entry(kernel, sm, heads, batch, cache))
    for kernel in ("stock", "bounded"):
        indexer_pinned.pin(kernel, sm, keys)
