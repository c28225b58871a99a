"""The sweep of sparse MLA beside its peers: ratios within each point, real and computed heads, and what limits each."""

from statistics import median

from markupsafe import Markup

from . import words
from .block import Block, paragraph, table

FLASHMLA = ("flashmla", "flashmla_prefill")

HALF = 0.5
"""From this share of a rate on, that rate is said to limit a kernel; below both, neither does."""


def compared(points: list[dict]) -> Block:
    """One row for each point and what was timed in it: time, times the floor, ratios to SIMT and to FlashMLA, limit.

    Times of one row's point come from replays in turns, in one process. A peer that was left out stands with its
    reason. Points of a step without lists (a user's own, the indexer) have no row.
    """
    rows = [row for group in _groups(points) for row in _rows(group)]
    if not rows:
        return paragraph("Nothing of sparse MLA decode was timed.")
    columns = ["Lists", "Cache", "Batch", "Context", "Heads", "Computed", "What", "Median (µs)", "Floor (µs)"]
    columns += ["Times the floor", "SIMT over this", "This over FlashMLA", "Limited by"]
    return table(columns, rows)


def _groups(points: list[dict]) -> list[list[dict]]:
    """Variants of one point together; of points that say what lists they have."""
    found: dict[tuple, list[dict]] = {}
    for p in points:
        if p.get("lists"):
            found.setdefault((p["shape"], p["cache"], p["context"], p["batch"]), []).append(p)
    return list(found.values())


def _rows(group: list[dict]) -> list[list]:
    times = {p["kernel"]: median(p["us"]) for p in group if p["us"]}
    simt = times.get("simt")
    flashmla = next((times[name] for name in FLASHMLA if name in times), None)
    rows = []
    for p in group:
        if not p["us"] and not p["reason"]:
            continue
        us = times.get(p["kernel"]) if p["us"] else None
        rows.append(
            [
                p["lists"], p["cache"], p["batch"], p["context"], p["heads"], p.get("padded_heads"), p["kernel"],
                f"{us:.2f}" if us else None,
                f"{p['floor_us']:.3g}" if p.get("floor_us") else None,
                words.of_floor(p),
                f"{simt / us:.1f}" if us and simt and p["kernel"] != "simt" else None,
                f"{us / flashmla:.2f}" if us and flashmla and p["kernel"] not in FLASHMLA else None,
                limit(p) if us else Markup("{}: {}").format(p["status"].replace("_", " "), p["reason"]),
            ]
        )  # fmt: skip
    return rows


def limit(p: dict) -> str:
    """What limits a timed variant: bytes or tensor pipe where it reaches half of that rate, else neither.

    Where neither is near, time goes to latency (a chain of dependent loads, barriers, launches) and to instructions
    that are not counted as work, such as dequantising. "" where there is no floor.
    """
    if not p.get("share"):
        return ""
    share = p["share"]
    if share >= HALF:
        return f"{'bytes' if p['floor_bound'] == 'bytes' else 'tensor pipe'} ({share:.0%} of its rate)"
    return f"neither bytes nor tensor pipe ({share:.0%} of the nearer): latency, instructions"
