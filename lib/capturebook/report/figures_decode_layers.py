"""A layer of the decode step, rung by rung: its time, GPU time by class, what lies between kernels, and losses."""

from itertools import pairwise

from ..measure.decode_model import routing
from ..measure.decode_variants import CHAIN
from ..measure.kernel_classes import CLASSES
from . import words
from .block import Block, details, paragraph, table
from .decode_rank import rank

NOT_HERE = "No layer of the decode step was timed here."

KERNELS = (
    "Layers: swa attends to a window alone, csa also to tokens compressed 4 to 1, which an indexer selects, hca to "
    "tokens compressed 128 to 1. A rung has the switches of the one above it and what its name says. The kernel mma is "
    "tl.dot's, which auto takes too where the heads are no multiple of 64; for 64 heads it takes Gluon kernels on "
    "sm_90, but for long lists of few requests."
)
"""What the names of layers and rungs mean; of attention kernels: see `kernels.sparse_mla.paths`."""


def layers(points: list[dict]) -> Block:
    """One row for each rung at each point of a layer: time, gain over the first rung, GPU time and launches by class.

    points: of `rows.sweep_points`. Rungs with lanes have no classes: their kernels run side by side.
    """
    timed = [p for p in points if p.get("layer") and p["us"]]
    if not timed:
        return paragraph(NOT_HERE)
    called = any("called_us" in p for p in timed)
    columns = ["Layer", "Batch", "Context", "Rung", "µs", "Gain", "tok/s", *(f"{c} µs" for c in CLASSES)]
    columns += ["Between kernels µs", "Launches", "Unmatched", *(["Uncaptured µs"] if called else [])]
    first: dict[tuple, float] = {}
    rows, key = [], fullest(timed)
    for p in timed:
        place = (_kind(p), p["batch"], p["context"], p["max_context"])
        first.setdefault(place, p["median_us"])
        classes = [f"{p['classes'][c]:.1f}" for c in CLASSES] if p.get("classes") else [None] * len(CLASSES)
        launches = sum(p["launches"].values()) if p.get("launches") else p.get("nodes")
        rows.append(
            [
                _kind(p), p["batch"], f"{p['context']} of {p['max_context']}", p["variant"], f"{p['median_us']:.1f}",
                f"{first[place] / p['median_us']:.2f}x", f"{p['tokens_per_second']:,.0f}", *classes,
                None if between(p) is None else f"{between(p):z.1f}", f"{launches:.0f}" if launches else None,
                _unmatched(p), *([_called(p)] if called else []),
            ]
        )  # fmt: skip
    shown = [row for row, p in zip(rows, timed) if (p["batch"], p["context"], p["max_context"]) == key]
    of = f"A layer of V4-Flash on {rank(timed)}"
    found = paragraph(f"{of}. {_said(timed, called)}") + table(columns, shown)
    if len(shown) < len(rows):
        found += details(f"All {len(rows)} rows", table(columns, rows, of))
    return found + paragraph(" ".join(slower(timed)))


def _kind(p: dict) -> str:
    """`csa`; `swa, hash routing` of one that is routed by token."""
    return p["layer"] if routing(p) == "score" else f"{p['layer']}, {routing(p)} routing"


def fullest(points: list[dict]) -> tuple:
    """(batch, context, max_context) at which the most rungs were measured, the first of such places."""
    places = [(p["batch"], p["context"], p["max_context"]) for p in points]
    return max(dict.fromkeys(places), key=places.count)


def between(point: dict) -> float | None:
    """us of a layer, or of all layers of the model, that no kernel of a profiled replay fills; None without classes."""
    if not point.get("classes"):
        return None
    us = point["median_us"] if "median_us" in point else point["us"] - point["ends_us"]
    return us - sum(point["classes"].values())


def _said(timed: list[dict], called: bool) -> str:
    """What the columns mean."""
    looked = sorted({p.get("profiled", 1) for p in timed if p.get("classes")})
    said = KERNELS
    if looked:
        said += (
            f" Classes: the mean of {words.counted(looked[-1], 'profiled replay')} at most; between kernels: the time "
            "less their sum, below 0 where what was profiled took longer than what was timed. Unmatched: launches of a "
            "layer that the plain run has under no such name, gemm or glue by "
            f"their own; renamed: as many as it has left, of the same classes in their order.{_names(timed)}"
        )
    return said + (" Uncaptured: launched from Python, median (least to most), the host's time." if called else "")


def _unmatched(p: dict) -> str | None:
    if not p.get("classes"):
        return None
    if "others" not in p:  # earlier runs have the number of those in all layers of the step, and no names
        return f"{p.get('unmatched', 0) / p.get('layers', 1):.0f}"
    unknown, renamed = (
        sum(one["launches"] for one in p["others"] if (one["plain"] is None) == alone) for alone in (True, False)
    )
    return f"{unknown:.0f}" + (f", {renamed:.0f} renamed" if renamed else "")


def _names(timed: list[dict]) -> str:
    """Which launches the plain runs had under another name, or not at all."""
    found: dict[tuple, dict[str, None]] = {}
    for one in (one for p in timed for one in p.get("others", [])):
        found.setdefault((one["kernel"], one["plain"]), {})[one["class"]] = None
    named = [
        f"{kernel!r} {'of no other name' if plain is None else f'for {plain!r}'} ({', '.join(groups)})"
        for (kernel, plain), groups in found.items()
    ]
    return f" Not found by name: {words.listed(named)}." if named else ""


def _called(p: dict) -> str | None:
    if "called_us" not in p:
        return None
    span = f" ({p['called_least_us']:.0f} to {p['called_most_us']:.0f})" if "called_least_us" in p else ""
    return f"{p['called_us']:.0f}{span}"


def slower(timed: list[dict]) -> list[str]:
    """A sentence for each rung that takes more time than the one before it at its place, and whether that is more than
    the samples spread; one alone where none does."""
    places: dict[tuple, dict[str, dict]] = {}
    for p in timed:
        places.setdefault((_kind(p), words.point(p)), {})[p["variant"]] = p
    steps, found = 0, []
    for (layer, point), here in places.items():
        for before, after in pairwise(here[name] for name in CHAIN if name in here):
            steps += 1
            if after["median_us"] > before["median_us"]:
                meet = min(after["us"]) <= max(before["us"])
                found.append(
                    f"{layer} at {point}: {after['variant']!r} {after['median_us']:.1f} µs, {before['variant']!r} "
                    f"{before['median_us']:.1f}, "
                    + ("equal within the spread of the samples" if meet else "slower, by more than the samples spread")
                    + f" ({_span(after)}, {_span(before)})."
                )
    if not steps:
        return []
    if not found:
        return [f"Each rung takes less time than the one before it, in all {steps} pairs of neighbours."]
    return [f"{len(found)} of {steps} pairs of neighbouring rungs without a gain.", *found]


def _span(p: dict) -> str:
    return f"{min(p['us']):.1f} to {max(p['us']):.1f}"
