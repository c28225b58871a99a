"""From layers to the model: what timed layers of each kind mean for all 43, and the story's numbers beside them.

An extrapolation: 2 + 21 + 20 layers one after the other, each as fast as one of its kind, and the ends.
"""

from dataclasses import replace

from . import amdahl
from .decode_variants import RUNGS, Switches
from .kv_capacity import LAYERS

NEAR = 0.1
"""A number of the story counts as reproduced within so much of it, relative to it."""


def whole(points: list[dict]) -> list[dict]:
    """One dict for each variant, batch, context and maximum context at which a layer of every kind was timed.

    points: of `rows.sweep_points`. A layer without an indexer may be of a variant that differs in the indexer alone,
    and one of the sliding window alone, which follows no context, of another context of the same batch. us: of a step
    of the model; tokens_per_second: batch over that; classes: us by class of GPU work, None where a layer's are not
    known; launches: kernels and copies a step, the ends left out; nodes: of the graphs, waits among them; ends_us.
    """
    timed = [p for p in points if p.get("layer") and p["us"]]
    others: dict[tuple, dict] = {}
    for p in timed:
        bare = (p["layer"], without_indexer(p["variant"]), p["batch"])
        others.setdefault((*bare, p["context"], p["max_context"]), p)
        if p["layer"] == "swa":
            others.setdefault(bare, p)
    found = []
    for p in (p for p in timed if p["layer"] == "csa"):
        place = {name: p[name] for name in ("batch", "context", "max_context")}
        bare = (without_indexer(p["variant"]), p["batch"])
        here = (p["context"], p["max_context"])
        kinds = {"csa": p, "hca": others.get(("hca", *bare, *here))}
        kinds["swa"] = others.get(("swa", *bare, *here)) or others.get(("swa", *bare))
        if not all(kinds.values()):
            continue
        ends = max(p.get("ends_us", 0.0) for p in kinds.values())
        us = ends + sum(n * kinds[kind]["median_us"] for kind, n in LAYERS.items())
        row = {"variant": p["variant"], **place, "us": us, "ends_us": ends}
        row |= {"tokens_per_second": p["batch"] / us * 1e6, "classes": None, "launches": None}
        nodes = [n * kinds[kind].get("nodes", 0.0) for kind, n in LAYERS.items()]
        row["nodes"] = sum(nodes) if all(nodes) else None
        if all(p.get("classes") for p in kinds.values()):
            for name in ("classes", "launches"):
                row[name] = {
                    group: sum(n * kinds[kind][name][group] for kind, n in LAYERS.items())
                    for group in next(iter(kinds.values()))[name]
                }
        found.append(row)
    return found


def without_indexer(variant: str) -> Switches | str:
    """What a variant is in a layer that has no indexer: variants that are the same there compare equal."""
    return replace(RUNGS[variant], indexer="bounded") if variant in RUNGS else variant


def share(row: dict, group: str) -> float | None:
    """A class's part of the GPU time of a row of `whole`, the ends left out."""
    return row["classes"][group] / sum(row["classes"].values()) if row["classes"] else None


STOCK, MMA, BOTH, FUSED = "stock", "stock, mma", "mma, bounded indexer", "and fused glue"
INDEXER = ((MMA, BOTH), ("mma, torch indexer", BOTH), ("own heads only, torch indexer", "and own heads only"))
"""Rungs of `decode_variants` that differ in the indexer alone: stock or torch before, bounded after."""


def story(rows: list[dict]) -> list[dict]:
    """The story's numbers beside what was measured: key, claim, told, measured, ends, status, where.

    rows: of `whole`. status: "reproduced" where a number is within a tenth of what the story tells (of the MMA kernel's
    gain, which it tells over all concurrencies, at every point), "not reproduced", or "not measured". where: (rung
    before, batch, context, max_context) at which it is; ends: those of the least and the most. What refutes a number
    is `amdahl.verdicts` alone.
    """
    told = amdahl.STORY
    at = {(r["variant"], r["batch"], r["context"], r["max_context"]): r for r in rows}

    def gains(*pairs: tuple[str, str]) -> dict:
        found = {}
        for before, after in pairs:
            for (variant, *place), row in at.items():
                if variant == before and (after, *place) in at:
                    found[variant, *place] = row["us"] / at[after, *place]["us"]
        return found

    def shares(variant: str, group: str) -> dict:
        return {key: share(row, group) for key, row in at.items() if key[0] == variant and row["classes"]}

    indexer = {key: value for key, value in gains(*INDEXER).items() if key[1] == 64}
    before, after = told["attention"]
    return [
        _beside(
            "mma", "gain from the MMA kernel, over all concurrencies", told["mma"], gains((STOCK, MMA)), every=True
        ),
        _beside("indexer", "gain from the bounded indexer at concurrency 64", (told["indexer"],) * 2, indexer),
        _beside("before", "attention's share before the MMA kernel", (before, before), shares(STOCK, "attention")),
        _beside("after", "attention's share after it", (after, after), shares(MMA, "attention")),
        _beside("glue", "the glue's share after both fixes", (told["glue"],) * 2, shares(BOTH, "glue")),
        _beside("fused", "gain from fusing the glue", (told["fused"],) * 2, gains((BOTH, FUSED))),
    ]


def _beside(key: str, claim: str, told: tuple[float, float], found: dict[tuple, float], every: bool = False) -> dict:
    low, high = told[0] * (1 - NEAR), told[1] * (1 + NEAR)
    where = [place for place, value in sorted(found.items()) if low <= value <= high]
    status, ends = "not measured", []
    if found:
        status = "reproduced" if where and (len(where) == len(found) or not every) else "not reproduced"
        ends = [min(found, key=found.get), max(found, key=found.get)]
    measured = tuple(found[place] for place in ends) or None
    row = {"key": key, "claim": claim, "told": told, "measured": measured, "ends": ends}
    return row | {"status": status, "where": where}
