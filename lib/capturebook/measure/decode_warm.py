"""Kernels of the decode step compiled beforehand, many processes side by side: a timing process compiles one by one.

What a process compiles goes into the run's store of caches, from which those that time start. Nothing is measured here.
"""

from dataclasses import replace
from typing import Any

from ..probes import Probe
from ..records import Subject
from .decode_point import DEFAULTS

DEVICE = "cuda"

UNITS: dict[str, list[tuple[dict, tuple[str, ...]]]] = {
    "simt attention, stock indexer": [
        ({"kernel": "simt", "padded": True}, ("attend",)),
        ({"indexer": "stock"}, ("select",)),
    ],
    "mma attention, 64 heads": [({"padded": True}, ("attend",))],
    "mma attention, own heads": [({}, ("attend",))],
    "auto attention, 64 heads": [({"kernel": "auto", "padded": True}, ("attend",))],
    "bounded indexer, routing": [({}, ("select", "route", "combine"))],
    "mHC, compressors": [({}, ("enter", "between", "leave", "compress", "compress_keys"))],
    "heads and rows": [
        ({}, ("latents", "heads_in", "heads_out", "index_heads", "swiglu")),
        ({"padded": True}, ("heads_in", "heads_out")),
    ],
}
"""What one process compiles: switches, and the fields of `Ops` that they give; all else is torch ops."""


def plan_warm(params: Any, options: dict) -> list[Probe]:
    """A probe for each unit and batch of the parameters, all side by side."""
    return [
        Probe(
            kind="sweep",
            subject=Subject(
                target=params.subject,
                options={
                    "part": "warm",
                    "unit": unit,
                    "batch": batch,
                    "layers": list(options.get("layers", ("swa", "csa", "hca"))),
                    "max_context": max(512, min(params.max_contexts)),
                    "step": {name: value for name, value in options.items() if name in DEFAULTS},
                },
            ),
            job="capturebook.measure.decode_warm:run",
            seed=params.seed,
            deadline=params.deadline,
            label=f"compiled beforehand: {unit}, batch {batch}",
        )
        for unit in UNITS
        for batch in params.batches
    ]


def run(ctx) -> dict:
    """Job: one call of each of a unit's mixtures of operators, over a layer of each kind and the least context."""
    import torch

    from ..subjects.decode_step.ops import torch_ops, triton_ops
    from ..subjects.decode_step.step import KERNEL_HEADS, assemble
    from .decode_variants import padded_to, pin_all

    asked = ctx.probe.subject.options
    step, batch = {**DEFAULTS, **asked["step"]}, asked["batch"]
    ctx.stage("build")
    place = {"batch": batch, "context": 512, "max_context": asked["max_context"]}
    stack = assemble(asked["layers"], **step, **place, device=DEVICE, weights=_weights(asked["layers"], step))
    shape = stack.layers[0].attention.shape
    streams = torch.zeros(batch, 4, shape.hidden, dtype=torch.bfloat16, device=DEVICE)
    tokens = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
    ctx.stage("compile")
    for given, fields in UNITS[asked["unit"]]:
        heads = KERNEL_HEADS if given.get("padded") else shape.heads
        pin_all(heads, batch, step["cache"], step["keys"])
        full = triton_ops(given.get("kernel", "mma"), given.get("indexer", "bounded"), "fused", "fused")
        ops = replace(torch_ops(), experts=_between, **{field: getattr(full, field) for field in fields})
        with torch.no_grad():
            padded_to(stack, heads)(ops, streams, tokens)
    torch.cuda.synchronize()
    return {"status": "pass", "payload": {name: asked[name] for name in ("part", "unit", "batch")}}


def _weights(kinds: list[str], step: dict) -> list[dict]:
    """Of each layer, with as few experts as one token goes to: their matmuls are not Triton's, and all of them would
    not fit in a dozen processes at a time (6.5 GB a layer in fp8, and three times that while they are drawn)."""
    import torch

    from ..subjects.decode_step.shapes import SIZES
    from ..subjects.decode_step.weights import draw

    shape = SIZES[step["size"]].rank(step["tp"])
    few, found = replace(shape, experts=shape.active), []
    for number, kind in enumerate(kinds):
        weights = draw(few, kind, step["routing"], number, DEVICE, torch.bfloat16, step["experts"])
        for name in {"router", "router.bias"} & set(weights):
            weights[name] = weights[name].new_zeros(shape.experts, *weights[name].shape[1:])
        found.append(weights)
    return found


def _between(x, ids, up, down, swiglu):
    """What stands between the experts' matmuls, and zeros of the shapes that those give (see `experts.grouped`)."""
    import torch

    swiglu(x.new_zeros(ids.numel(), up.values.shape[1]))
    return x.new_zeros(ids.numel(), x.shape[1]), torch.arange(ids.numel(), device=x.device)
