"""What the run of a decode step measures, in the order in which it does: not every rung at every place.

First compilations, side by side. Then, each alone on the GPU: all rungs at one place, batch buckets, the rungs that the
story tells of at other batches and maximum contexts, torch.compile, and the first and last rungs at other contexts,
where other batches come last; a layer that is routed by token, and one with an indexer under torch.compile.
"""

from typing import Any

from ..probes import Probe
from ..records import Subject
from .decode_buckets import plan_buckets
from .decode_compile import plan_compile, plan_indexed
from .decode_model import without_indexer
from .decode_point import DEFAULTS
from .decode_variants import AUTO, FALLBACK, LADDER, RUNGS
from .decode_warm import plan_warm
from .kv_capacity import LAYERS
from .rows import place_name

KEY_BATCH, KEY_CONTEXT = 64, 8192
"""Where all rungs are measured, or at the largest that are asked for up to these."""

STORY = ("stock", "stock, mma", "mma, bounded indexer", "and fused glue", "and fused routing", "and overlap")
REACH = (*STORY[:3], *FALLBACK, "and own heads only", "and overlap")
ENDS = ("stock", "stock, mma", "and overlap")
"""Rungs at other batches, at other maximum contexts, and elsewhere."""

BY_TOKEN = ("and own heads only", "and fused routing", "and overlap")
"""Of a layer that is routed by token, whose router alone differs: in torch, fused, and beside side streams."""


def plan_decode(params: Any, options: dict) -> list[Probe]:
    """All of it for these parameters; options: of the step, of which those in DEFAULTS are taken, and layers."""
    layers, groups = options.get("layers", LAYERS), places(params.batches, params.contexts, params.max_contexts)
    key, told, far = (
        [_points(params, options, kind, group) for kind in ("csa", "hca") if kind in layers] for group in groups
    )
    if "swa" in layers:
        key.append(_points(params, options, "swa", groups[0] + groups[1]))
    timed = [*key, *plan_buckets(params, options), *told, *plan_compile(params, options, timed=True), *far]
    if "swa" in layers and options.get("routing", "score") == "score":
        by_token = [(*groups[0][0][:3], BY_TOKEN, True)]
        timed.append(_points(params, options | {"routing": "hash"}, "swa", by_token))
    timed += plan_indexed(params, options, timed=True)
    return [*before(params, options), *filter(None, timed)]


def before(params: Any, options: dict) -> list[Probe]:
    """What only compiles, side by side, for those that time."""
    compiled = (*plan_compile(params, options, timed=False), *plan_indexed(params, options, timed=False))
    return [*compiled, *plan_warm(params, options)]


def places(batches: list[int], contexts: list[int], max_contexts: list[int]) -> list[list[tuple]]:
    """Groups of (batch, context, max_context, rungs, whether kernels are looked at), the most wanted first.

    The place of all rungs; other batches and maximum contexts; other contexts, first at the first batch, then at the
    largest and the least, then at others. Kernels are looked at in all of the first two, and at the longest context.
    """
    batch, context, most = near(batches, KEY_BATCH), near(contexts, KEY_CONTEXT), min(max_contexts)
    key = [(batch, context, most, (*LADDER, *AUTO, *FALLBACK), True)]
    extremes = [b for b in sorted({min(batches), max(batches)}) if b != batch]
    rest = [b for b in batches if b not in (batch, *extremes)]
    told = [(other, context, most, STORY, True) for other in extremes]
    told += [(batch, context, other, REACH, True) for other in max_contexts if other != most]
    told += [(other, context, most, STORY, True) for other in rest]
    others = [other for other in contexts if other != context and other <= most]
    longest = max([context, *others])
    far = [(b, c, most, ENDS, c == longest) for of in ([batch], extremes, rest) for c in others for b in of]
    return [key, told, far]


def near(values: list[int], wanted: int) -> int:
    """The largest of `values` up to `wanted`, or the least of all."""
    return max([value for value in values if value <= wanted] or [min(values)])


def _points(params, options, kind: str, group: list[tuple]) -> Probe | None:
    """One probe for a kind of layer at the places of a group; None where it has nothing to measure there.

    A layer of the sliding window alone is measured at one context of each batch: nothing of it follows the context.
    """
    at = near(params.contexts, KEY_CONTEXT), min(params.max_contexts)
    asked = [_place(kind, *place) for place in group if kind != "swa" or place[1:3] == at]
    if not asked:
        return None
    options = {
        "layer": kind,
        "places": asked,
        "step": {name: value for name, value in options.items() if name in DEFAULTS},
    }
    return Probe(
        kind="sweep",
        subject=Subject(target=params.subject, options=options),
        job="capturebook.measure.decode_sweep:run",
        args={"samples": params.samples, "memory_gib": params.memory_gib},
        seed=params.seed,
        exclusive=True,
        deadline=params.deadline,
        label=f"decode sweep: {kind}, {_routing(options)}{place_name(asked[0])}"
        + (f" and {len(asked) - 1} more" if asked[1:] else ""),
    )


def _routing(options: dict) -> str:
    return "hash routing, " if options["step"].get("routing") == "hash" else ""


def _place(kind: str, batch: int, context: int, most: int, rungs: tuple[str, ...], profile: bool) -> dict:
    if kind != "csa":
        rungs = {without_indexer(name): name for name in reversed(rungs)}.values()
        rungs = [name for name in RUNGS if name in set(rungs)]
    variants = {name: {"kernel": name, "tuning": "pinned"} for name in rungs}
    return {"batch": batch, "context": context, "max_context": most, "profile": profile, "variants": variants}
