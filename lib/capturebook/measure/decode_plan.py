"""What the run of a decode step measures, in the order in which it does: not every rung at every place.

First compilations, side by side. Then, each alone on the GPU: all rungs at one place, batch buckets, the rungs that the
story tells of at other batches and maximum contexts, torch.compile, the first and last rungs at other contexts, and at
the largest and the least batch everywhere else.
"""

from typing import Any

from ..probes import Probe
from ..records import Subject
from .decode_buckets import plan_buckets
from .decode_compile import plan_compile
from .decode_model import without_indexer
from .decode_point import DEFAULTS
from .decode_variants import FALLBACK, LADDER, RUNGS
from .decode_warm import plan_warm
from .kv_capacity import LAYERS

KEY_BATCH, KEY_CONTEXT = 64, 8192
"""Where all rungs are measured, or at the largest that are asked for up to these."""

STORY = ("stock", "stock, mma", "mma, bounded indexer", "and fused glue", "and fused routing", "and overlap")
REACH = (*STORY[:3], *FALLBACK, "and own heads only", "and overlap")
ENDS = ("stock", "stock, mma", "and overlap")
"""Rungs at other batches, at other maximum contexts, and elsewhere."""


def plan_decode(params: Any, options: dict) -> list[Probe]:
    """All of it for these parameters; options: of the step, of which those in DEFAULTS are taken, and layers."""
    kinds = [kind for kind in ("csa", "hca", "swa") if kind in options.get("layers", LAYERS)]
    points = [
        _point(params, options, kind, *place)
        for place in places(params.batches, params.contexts, params.max_contexts)
        for kind in kinds
        if kind != "swa" or place[1] == near(params.contexts, KEY_CONTEXT) and place[2] == min(params.max_contexts)
    ]
    before = [*plan_compile(params, options, timed=False), *plan_warm(params, options)]
    first = len(kinds)
    told = sum(point.subject.options["profile"] for point in points)
    timed = [*points[first:told], *plan_compile(params, options, timed=True), *points[told:]]
    return [*before, *points[:first], *plan_buckets(params, options), *timed]


def places(batches: list[int], contexts: list[int], max_contexts: list[int]) -> list[tuple]:
    """(batch, context, max_context, rungs, whether kernels are looked at), the most wanted first.

    A layer of the sliding window alone is measured at one context of each batch: nothing of it follows the context.
    """
    batch, context, most = near(batches, KEY_BATCH), near(contexts, KEY_CONTEXT), min(max_contexts)
    found = [(batch, context, most, (*LADDER, *FALLBACK), True)]
    found += [(other, context, most, STORY, True) for other in batches if other != batch]
    found += [(batch, context, other, REACH, True) for other in max_contexts if other != most]
    found += [(batch, other, most, ENDS, False) for other in contexts if other != context]
    extremes = [b for b in sorted({min(batches), max(batches)}) if b != batch]
    found += [(b, c, most, ENDS, False) for c in contexts if c != context for b in extremes]
    return [place for place in found if place[1] <= place[2]]


def near(values: list[int], wanted: int) -> int:
    """The largest of `values` up to `wanted`, or the least of all."""
    return max([value for value in values if value <= wanted] or [min(values)])


def _point(params, options, kind, batch, context, most, rungs, profile) -> Probe:
    if kind != "csa":
        rungs = {without_indexer(name): name for name in reversed(rungs)}.values()
        rungs = [name for name in RUNGS if name in set(rungs)]
    asked = {
        "variants": {name: {"kernel": name, "tuning": "pinned"} for name in rungs},
        "layer": kind,
        "batch": batch,
        "context": context,
        "max_context": most,
        "profile": profile,
        "step": {name: value for name, value in options.items() if name in DEFAULTS},
    }
    return Probe(
        kind="sweep",
        subject=Subject(target=params.subject, options=asked),
        job="capturebook.measure.decode_sweep:run",
        args={"samples": params.samples, "memory_gib": params.memory_gib},
        seed=params.seed,
        exclusive=True,
        deadline=params.deadline,
        label=f"decode sweep: {kind}, batch {batch}, context {context} of {most}",
    )
