"""The decode step's story beside what was measured: each of its numbers, whether it is so, and where."""

from itertools import pairwise

from . import amdahl
from .decode_model import share
from .decode_variants import RUNGS

NEAR = 0.1
"""A number of the story counts as reproduced within so much of it, relative to it."""

STOCK, MMA, BOTH, FUSED = "stock", "stock, mma", "mma, bounded indexer", "and fused glue"
INDEXER = ((MMA, BOTH), ("mma, torch indexer", BOTH), ("own heads only, torch indexer", "and own heads only"))
"""Rungs of `decode_variants` that differ in the indexer alone: stock or torch before, bounded after."""

Place = tuple[str, int, int, int, int]
"""Rung (of a gain the one before), batch, context, maximum context, and of how many layers it is known."""


def story(rows: list[dict]) -> list[dict]:
    """The story's numbers beside what was measured: key, claim, told, values, measured, ends, status, where and more.

    rows: of `decode_model.known`. status: "reproduced" where a number is within a tenth of what the story tells (of
    what it tells over all concurrencies: at every batch of some context), "not reproduced", or "not measured". values:
    by `Place`; where: those at which it is so; measured, ends: the least and the most, and at which they are;
    elsewhere: those at which a share is so after another rung with the same attention kernel. batches: of what is told
    over all, (those at which it is so, those at which it is not). between, beyond: see `crossings`. What refutes a
    number is `amdahl.verdicts` alone.
    """
    told = amdahl.STORY
    at = {(r["variant"], r["batch"], r["context"], r["max_context"], r["layers"]): r for r in rows}

    def gains(*pairs: tuple[str, str]) -> dict[Place, float]:
        found = {}
        for before, after in pairs:
            for (variant, *place), row in at.items():
                if variant == before and (after, *place) in at:
                    found[variant, *place] = row["us"] / at[after, *place]["us"]
        return found

    def shares(group: str, kernel: str) -> dict[Place, float]:
        return {
            key: share(row, group)
            for key, row in at.items()
            if row["classes"] and key[0] in RUNGS and RUNGS[key[0]].kernel == kernel
        }

    indexer = {key: value for key, value in gains(*INDEXER).items() if key[1] == 64}
    before, after = told["attention"]
    simt, mma, glue = shares("attention", "simt"), shares("attention", "mma"), shares("glue", "mma")
    return [
        _over_all("mma", "gain from the MMA kernel, over all concurrencies", told["mma"], gains((STOCK, MMA))),
        _beside("indexer", "gain from the bounded indexer at concurrency 64", (told["indexer"],) * 2, indexer)
        | crossings(indexer, told["indexer"]),
        _share("before", "attention's share before the MMA kernel", before, simt, STOCK),
        _share("after", "attention's share after it", after, mma, MMA),
        _share("glue", "the glue's share after both fixes", told["glue"], glue, BOTH),
        _beside("fused", "gain from fusing the glue", (told["fused"],) * 2, gains((BOTH, FUSED))),
    ]


def is_near(value: float, told: tuple[float, float]) -> bool:
    return told[0] * (1 - NEAR) <= value <= told[1] * (1 + NEAR)


def _beside(key: str, claim: str, told: tuple[float, float], found: dict[Place, float]) -> dict:
    where = [place for place, value in sorted(found.items()) if is_near(value, told)]
    ends = [min(found, key=found.get), max(found, key=found.get)] if found else []
    row = {"key": key, "claim": claim, "told": told, "values": dict(sorted(found.items()))}
    row["measured"] = tuple(found[place] for place in ends) or None
    status = ("reproduced" if where else "not reproduced") if found else "not measured"
    more = {"elsewhere": [], "batches": None, "between": [], "beyond": []}
    return row | {"ends": ends, "status": status, "where": where} | more


def _over_all(key: str, claim: str, told: tuple[float, float], found: dict[Place, float]) -> dict:
    """What is told over all concurrencies is so only where it is at every batch of a context."""
    row = _beside(key, claim, told, found)
    if not found:
        return row
    held: dict[tuple, dict[int, bool]] = {}
    for (_, batch, context, most, _), value in found.items():
        held.setdefault((context, most), {})[batch] = is_near(value, told)
    # of the contexts with the most batches, the one at most of which it is so
    best = max(held.values(), key=lambda of: (len(of), sum(of.values())))
    so = tuple(sorted(batch for batch, near in best.items() if near))
    row["batches"] = so, tuple(sorted(set(best) - set(so)))
    row["status"] = "not reproduced" if row["batches"][1] else "reproduced"
    return row


def _share(key: str, claim: str, told: float, found: dict[Place, float], rung: str) -> dict:
    """found: of all rungs with this attention kernel."""
    row = _beside(key, claim, (told, told), {place: value for place, value in found.items() if place[0] == rung})
    others = {place: value for place, value in found.items() if place[0] != rung}
    row["elsewhere"] = [place for place, value in sorted(others.items()) if is_near(value, (told, told))]
    return row


def crossings(found: dict[Place, float], told: float) -> dict[str, list]:
    """Where a number must lie that was not met at any measured point, by the maximum context.

    between: (place of the lower maximum, its value, the higher maximum, its value, the maximum at which a straight line
    through both gives `told`); a padded indexer's time follows its maximum, so that the line is a fair guess. beyond:
    (place of the highest maximum, its value) of those that only come nearer up to there, where nothing is known.
    """
    series: dict[tuple, list[tuple]] = {}
    for (rung, batch, context, most, layers), value in sorted(found.items()):
        series.setdefault((rung, batch, context, layers), []).append((most, value))
    between, beyond = [], []
    for (rung, batch, context, layers), of in series.items():
        for (low, less), (high, more) in pairwise(of):
            if min(less, more) < told < max(less, more) and not any(is_near(v, (told, told)) for v in (less, more)):
                at = low + (told - less) / (more - less) * (high - low)
                between.append(((rung, batch, context, low, layers), less, high, more, at))
        if len(of) > 1 and of[-2][1] < of[-1][1] < told * (1 - NEAR):
            beyond.append(((rung, batch, context, of[-1][0], layers), of[-1][1]))
    return {"between": between, "beyond": beyond}
