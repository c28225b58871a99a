"""Sparse MLA beside its peers: times and ratios at every batch, targets, heads computed, and what limits each."""

from statistics import median

from markupsafe import Markup

from ..measure.rows import entries_of
from ..measure.targets import judged
from . import figures_counters, words
from .block import Block, details, paragraph, table

FLASHMLA = ("flashmla", "flashmla_prefill")

OURS = ("auto", "gluon", "mma")
"""The first of these that a point has is the one that is compared."""

HALF = 0.5
"""From this share of a rate on, that rate is said to limit a kernel; below both, latency does."""

LIMITS = (
    "Limited by bytes or by the tensor pipe is what reaches half of that rate; else by latency: chains of dependent "
    "loads, barriers and launches, and instructions that no floor counts, such as dequantising."
)

FORMATS = {"bf16": "bf16 rows", "fp8": "fp8 pages", "v32": "fp8 tokens of 656 bytes"}

MET = {"met": "met", "equal": "equal within 3 %", "missed": "missed"}


def compared(points: list[dict], counters: list[dict] = ()) -> Block:
    """A table for each shape and format, a row for each batch; the targets; every variant, folded.

    counters: of measure.rows.counters_of, shown below what limits each.
    Times of one row come from replays in turns, in one process. Points of a step without lists (a user's own, the
    indexer) have no row.
    """
    groups = [group for group in _groups(points) if any(p["us"] for p in group)]
    if not groups:
        return paragraph("Nothing of sparse MLA decode was timed.")
    whole = paragraph(targets_met(points) or "No targets: they are an H200's, or no point was timed that has one.")
    for key in dict.fromkeys(_key(group[0]) for group in groups):
        same = (group for group in groups if _key(group[0]) == key)
        whole = whole + _beside(sorted(same, key=lambda group: group[0]["batch"]))
    beside = [figures_counters.counted(counters, _missed(points))] if counters else []
    for block in [paragraph(LIMITS), *beside, *_left(points), details("Every variant", _variants(points))]:
        whole = whole + block
    return whole


def _key(p: dict) -> tuple:
    return p["shape"], p["cache"], p["context"]


def _groups(points: list[dict]) -> list[list[dict]]:
    """Variants of one point together; of points that say what lists they have."""
    found: dict[tuple, list[dict]] = {}
    for p in points:
        if p.get("lists"):
            found.setdefault((*_key(p), p["batch"]), []).append(p)
    return list(found.values())


def _beside(groups: list[list[dict]]) -> Block:
    """One shape and format over batch: ours, FlashMLA, SIMT, each with its ratio."""
    rows = [_point(group) for group in groups]
    first = groups[0][0]
    columns = ["Batch", "Entries", "Ours (µs)", "FlashMLA (µs)", "Ours / FlashMLA", "Target"]
    columns += ["Floor (µs)", "Ours / floor", "SIMT (µs)", "SIMT / ours", "Heads", "Limited by"]
    here = [n for n, _ in enumerate(columns) if n < 3 or any(row[n] for row in rows)]  # none: no such peer, no target
    peer = {p["kernel"]: p["config"] for group in groups for p in group if p["kernel"] in FLASHMLA and p["us"]}
    caption = f"{first['lists']}, {FORMATS[first['cache']]}, {first['heads']} heads, context {first['context']:,}"
    caption += f". {'; '.join(peer.values())}." if peer else "."
    caption += " Entries: of a request, on average"
    unjudged = dict.fromkeys(str(t["entries"]) for group in groups for t in _judged(group) if t["met"] == "unjudged")
    caption += f"; what is not judged was set at {words.listed(list(unjudged))}." if unjudged else "."
    return table([columns[n] for n in here], [[row[n] for n in here] for row in rows], caption, stack=True)


def _roles(group: list[dict]) -> dict[str, dict]:
    """The timed variants of a point that are compared: "ours", "flashmla", "simt"."""
    timed = {p["kernel"]: p for p in group if p["us"]}
    names = {"ours": OURS, "flashmla": FLASHMLA, "simt": ("simt",)}
    found = {role: next((timed[n] for n in kernels if n in timed), None) for role, kernels in names.items()}
    return {role: p for role, p in found.items() if p}


def _point(group: list[dict]) -> list:
    roles = _roles(group)
    us = {role: median(p["us"]) for role, p in roles.items()}
    ours, flashmla, simt = (us.get(role) for role in ("ours", "flashmla", "simt"))
    targets = [_target(t) for t in _judged(group)]
    return [
        f"batch {group[0]['batch']}", words.entries(group), _us(ours), _us(flashmla),
        f"{ours / flashmla:.2f}" if ours and flashmla else None,
        Markup("<br>").join(targets) if targets else None,
        f"{group[0]['floor_us']:.3g}" if group[0].get("floor_us") else None,
        words.of_floor(roles["ours"]) if ours else None,
        _us(simt), f"{simt / ours:.1f}" if simt and ours else None,
        _heads(group[0]["heads"], roles), limit(roles["ours"]) if ours else None,
    ]  # fmt: skip


def _heads(real: int, roles: dict[str, dict]) -> str:
    """The heads that were asked for, and as how many ours and FlashMLA compute them, where that is more."""
    names = {"ours": "ours", "flashmla": "FlashMLA"}
    more = [f"{name} as {roles[r]['padded_heads']}" for r, name in names.items()
            if roles.get(r, {}).get("padded_heads", real) != real]  # fmt: skip
    return f"{real}, {', '.join(more)}" if more else f"{real}, none padded"


def _judged(group: list[dict]) -> list[dict]:
    us = {role: median(p["us"]) for role, p in _roles(group).items()}
    return judged(group[0], us["ours"], us.get("simt"), us.get("flashmla")) if "ours" in us else []


def _missed(points: list[dict]) -> list[tuple]:
    """(shape, cache, context, batch) of the points that miss a target."""
    return [(*_key(group[0]), group[0]["batch"]) for group in _groups(points)
            if any(t["met"] == "missed" for t in _judged(group))]  # fmt: skip


def _us(value: float | None) -> str | None:
    return f"{value:.2f}" if value else None


def _target(t: dict) -> Markup:
    what = t["what"].replace("ours / FlashMLA", "ratio")
    asked = f"{what} {'≥' if t['least'] else '≤'} {t['target']:g}"
    if t["met"] == "unjudged":
        return words.badge("skipped", f"{asked}: not judged")
    said = f"{asked}: {MET[t['met']]}"
    return words.badge("fail" if t["met"] == "missed" else "pass", said)


def targets_met(points: list[dict]) -> str:
    """How many targets were met, and which were not, in a few sentences; "" where no timed point has one.

    Also how full the lists were, if less than the targets were set at.
    """
    every = [(group[0], t) for group in _groups(points) for t in _judged(group)]
    if not every:
        return ""
    found = [(p, t) for p, t in every if t["met"] != "unjudged"]
    counts = {met: sum(t["met"] == met for _, t in found) for met in MET}
    said = f"{counts['met'] + counts['equal']} of {words.counted(len(found), 'target')} met"
    said += " (set for this kernel on an H200: a ratio to FlashMLA, or µs"
    said += f"; {counts['equal']} within 3 %, which counts as equal)" if counts["equal"] else ")"
    missed: dict[str, list[int]] = {}
    for p, t in found:
        if t["met"] == "missed":
            what = f"{t['what']} of {p['shape']} in {p['cache']}"
            missed.setdefault(what, []).append(p["batch"])
    places = [f"{what} at batch {words.listed(list(map(str, sorted(set(own)))))}" for what, own in missed.items()]
    told = [f"{said}."] if found else []
    told += [f"Missed: {'; '.join(places)}."] if missed else []
    return " ".join([*told, *_fewer(every)])


def _fewer(every: list[tuple[dict, dict]]) -> list[str]:
    """That lists held fewer entries than the targets of these points were set at, if so."""
    shares = [(entries_of(p) or 0) / t["entries"] for p, t in every]
    if min(shares) >= 1:
        return []
    left = [t["what"] for _, t in every if t["met"] == "unjudged"]
    so = f", so {words.counted(len(left), 'target')} are not judged ({'; '.join(dict.fromkeys(left))})" if left else ""
    return [f"Lists held {words.span([100 * s for s in shares])} % of the entries that the targets were set at{so}."]


def _left(points: list[dict]) -> list[Block]:
    """Variants that were not timed, with their reasons, each reason once."""
    found: dict[tuple, list] = {}
    for p in points:
        if p.get("lists") and not p["us"] and p["reason"]:
            found.setdefault((p["kernel"], p["status"], p["reason"]), []).append(f"{p['shape']} {p['batch']}")
    if not found:
        return []
    rows = [[name, status.replace("_", " "), why, ", ".join(where)] for (name, status, why), where in found.items()]
    return [table(["Not timed", "Status", "Why", "Where"], rows, stack=True)]


def _variants(points: list[dict]) -> Block:
    """One row for each variant of each point."""
    columns = ["What", "Lists", "Cache", "Batch", "Entries", "Heads", "Computed"]
    columns += ["Median (µs)", "Times the floor", "SIMT over this", "This over FlashMLA", "Limited by", "Configuration"]
    rows = []
    for group in _groups(points):
        us = {role: median(p["us"]) for role, p in _roles(group).items()}
        simt, flashmla = us.get("simt"), us.get("flashmla")
        for p in (p for p in group if p["us"]):
            own = median(p["us"])
            rows.append(
                [
                    p["kernel"], p["lists"], p["cache"], p["batch"], words.entries([p]), p["heads"],
                    p.get("padded_heads"), f"{own:.2f}", words.of_floor(p),
                    f"{simt / own:.1f}" if simt and p["kernel"] != "simt" else None,
                    f"{own / flashmla:.2f}" if flashmla and p["kernel"] not in FLASHMLA else None,
                    limit(p), p.get("config"),
                ]
            )  # fmt: skip
    return table(columns, rows)


def limit(p: dict) -> str:
    """What limits a timed variant: bytes or tensor pipe where it reaches half of that rate, else latency.

    Latency: a chain of dependent loads, barriers and launches, and instructions that are not counted as work, such as
    dequantising. With the share of the nearer rate. "" where there is no floor.
    """
    if not p.get("share"):
        return ""
    nearer = "bytes" if p["floor_bound"] == "bytes" else "tensor pipe"
    return f"{nearer} ({p['share']:.0%})" if p["share"] >= HALF else f"latency ({p['share']:.0%} of {nearer})"
