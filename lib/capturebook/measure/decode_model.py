"""From layers to the model: what timed layers of each kind mean for all 43, one after the other.

An extrapolation: 2 + 21 + 20 layers, each as fast as one of its kind, and the ends.
"""

from collections.abc import Iterable
from dataclasses import replace

from .decode_point import DEFAULTS
from .decode_variants import RUNGS, Switches
from .kv_capacity import LAYERS

COMPRESSED = ("csa", "hca")
"""Kinds of layer that are all but two of the model's."""


def whole(points: list[dict]) -> list[dict]:
    """One dict for each variant, batch, context and maximum context at which a layer of every kind was timed.

    points: of `rows.sweep_points`. A layer without an indexer may be of a variant that differs in the indexer alone,
    and one of the sliding window alone, which follows no context, of another context of the same batch. layers: how
    many they are; us: of a step of the model; tokens_per_second: batch over that; classes: us by class of GPU work,
    None where a layer's are not known; launches: kernels and copies a step, the ends left out, as in classes; nodes: of
    the graphs, waits among them; ends_us; tp: ranks that share the model, of which this is one.
    """
    return _rows(points, LAYERS)


def most(points: list[dict]) -> list[dict]:
    """The same of the 41 compressed layers: those of the sliding window alone and the ends are left out."""
    return _rows(points, COMPRESSED)


def known(points: list[dict]) -> list[dict]:
    """`whole` at every place where it is known, `most` at the others: rows of one place are of the same layers."""
    found = whole(points)
    there = set(map(place, found))
    return found + [row for row in most(points) if place(row) not in there]


def alike(points: list[dict]) -> list[dict]:
    """`whole` if it is known at every place at which `most` is, else `most`: all rows are of the same layers."""
    found, fewer = whole(points), most(points)
    return found if set(map(place, found)) == set(map(place, fewer)) else fewer


def place(row: dict) -> tuple[int, int, int]:
    """Batch, context and maximum context."""
    return row["batch"], row["context"], row["max_context"]


def _rows(points: list[dict], kinds: Iterable[str]) -> list[dict]:
    timed = [p for p in points if p.get("layer") and p["us"]]
    others: dict[tuple, dict] = {}
    for p in timed:
        bare = (p["layer"], *_alike(p))
        others.setdefault((*bare, p["context"], p["max_context"]), p)
        if p["layer"] == "swa":
            others.setdefault(bare, p)
    count = {kind: LAYERS[kind] for kind in kinds}
    found = []
    for p in (p for p in timed if p["layer"] == "csa"):
        bare, here = _alike(p), (p["context"], p["max_context"])
        layers = {kind: others.get((kind, *bare, *here)) for kind in count} | {"csa": p}
        if "swa" in count:
            layers["swa"] = layers["swa"] or others.get(("swa", *bare))
        if all(layers.values()):
            ends = max(p.get("ends_us", 0.0) for p in layers.values()) if count == LAYERS else 0.0
            found.append(_row(layers, count, ends))
    return found


def _alike(p: dict) -> tuple:
    """What layers of different kinds have in common that stand for one model: the variant, batch, and routing."""
    return without_indexer(p["variant"]), p["batch"], routing(p)


def routing(p: dict) -> str:
    """By "score", or by token, "hash"."""
    return (DEFAULTS | p.get("step", {}))["routing"]


def _row(layers: dict[str, dict], count: dict[str, int], ends: float) -> dict:
    first = layers["csa"]
    us = ends + sum(n * layers[kind]["median_us"] for kind, n in count.items())
    row = {name: first[name] for name in ("variant", "batch", "context", "max_context")}
    row |= {"layers": sum(count.values()), "tp": (DEFAULTS | first.get("step", {}))["tp"], "us": us, "ends_us": ends}
    row |= {"tokens_per_second": first["batch"] / us * 1e6, "classes": None, "launches": None}
    nodes = [n * layers[kind].get("nodes", 0.0) for kind, n in count.items()]
    row["nodes"] = sum(nodes) if all(nodes) else None
    if all(p.get("classes") for p in layers.values()):
        for name in ("classes", "launches"):
            groups = first[name]
            row[name] = {group: sum(n * layers[kind][name][group] for kind, n in count.items()) for group in groups}
    return row


def without_indexer(variant: str) -> Switches | str:
    """What a variant is in a layer that has no indexer: variants that are the same there compare equal."""
    return replace(RUNGS[variant], indexer="bounded") if variant in RUNGS else variant


def share(row: dict, group: str) -> float | None:
    """A class's part of the GPU time of a row of `whole`, the ends left out."""
    return row["classes"][group] / sum(row["classes"].values()) if row["classes"] else None
