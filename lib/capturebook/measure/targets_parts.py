"""What the indexer and the glue are to reach on an H200, and whether they do. Figures of the issue that asked for them.

They were set at batch 64; the indexer's for requests that have all the keys of their context, in bf16 but where it says
otherwise: of shorter ones a time would meet its target by doing less.
"""

from .targets import GPU

BATCH = 64

CALL_US = {8192: 24.0, 32768: 60.0}
"""Most that scores and selection may take together, by context."""

ROOMS, ROOM = (131072, 1048576), 1.05
"""Between these two maximum contexts a call's time may differ by so much."""

READ_SHARE, READ_FROM = 0.75, 32768
"""Least share of the read bandwidth that the scores reach alone, from this context on."""

SELECTION_US, SELECTION_KEYS = 10.0, 8192
"""Most that the selection may take alone, of so many keys or fewer."""

FP8 = 1.0
"""Most that a call on fp8 keys may take, in calls on bf16 keys of the same lengths."""

SCRATCH = 4
"""Most bytes of scratch a request, for each key that its maximum context has room for."""

RATIO = 4
"""Tokens of the context that one key stands for; a test holds it equal to kernels.indexer's."""

CHAIN, MHC = "capturebook.subjects.glue_chain:build", "capturebook.subjects.glue:build"

GLUE_US = {CHAIN: 35.0, MHC: 12.0}
"""Most that the fused step may take: the chain of a layer, and mHC's two halves around one sublayer."""

GLUE_KERNELS = {CHAIN: 8}
"""Most kernels that a call of it may launch."""


def judged(points: list[dict]) -> list[dict]:
    """The targets that these points have: [{what, unit, where, found, target, least, met}]; met: "met" or "missed".

    points: of rows.sweep_points. unit: "" of a ratio, "share" of one up to 1. where: in words. least: whether
    the target is a lower bound. A point that was not timed, or not on an H200, has none.
    """
    here = [p for p in points if p["us"] and GPU in p.get("gpu", "") and p["batch"] == BATCH]
    full = [p for p in here if p.get("key_format") and p.get("lengths") == "full"]
    bounded = {_place(p): p for p in full if p["kernel"] == "bounded"}
    glue = [p for p in here if p.get("subject") in GLUE_US and p["variant"] == "step"]
    return [*_of_the_indexer(bounded), *(row for p in glue for row in _of_the_glue(p))]


def _place(p: dict) -> tuple:
    return p["key_format"], p["context"], p["max_context"], p.get("part", "whole")


def _of_the_indexer(points: dict[tuple, dict]):
    """points: by format of the keys, context, maximum context and what part of a call was timed."""
    for (key_format, context, most, part), p in points.items():
        where = f"{key_format} keys, context {context} of {most}"
        us = p["median_us"]
        bf16 = key_format == "bf16"
        if bf16 and part == "whole" and context in CALL_US:
            yield _row("scores and selection", "µs", where, us, CALL_US[context])
            rooms = [points.get((key_format, context, room, part)) for room in ROOMS]
            if most == ROOMS[0] and all(rooms):
                times = sorted(room["median_us"] for room in rooms)
                which = f"{key_format} keys, context {context} of {ROOMS[0]} and of {ROOMS[1]}"
                yield _row("the slower / the faster, by room", "", which, times[1] / times[0], ROOM)
        if bf16 and part == "scores" and context >= READ_FROM and p.get("read_share"):
            yield _row("scores alone, of the read bandwidth", "share", where, p["read_share"], READ_SHARE, True)
        if bf16 and part == "selection" and context // RATIO <= SELECTION_KEYS:
            yield _row("selection alone", "µs", where, us, SELECTION_US)
    whole = {place[:3]: p for place, p in points.items() if place[3] == "whole"}
    pairs = [
        (p, whole["bf16", *place]) for (keys, *place), p in whole.items() if keys == "fp8" and ("bf16", *place) in whole
    ]
    if pairs:
        slowest = max(fp8["median_us"] / bf16["median_us"] for fp8, bf16 in pairs)
        yield _row("fp8 keys / bf16 keys", "", _most(pairs), slowest, FP8)
    scratch = [p["scratch_a_row"] / (p["max_context"] // RATIO) for p in whole.values() if "scratch_a_row" in p]
    if scratch:
        yield _row("scratch for each key there is room for", "bytes", _most(scratch), max(scratch), SCRATCH)


def _most(found: list) -> str:
    return f"the most of {len(found)} points" if len(found) > 1 else "one point"


def _of_the_glue(p: dict):
    what = "the layer's glue" if p["subject"] == CHAIN else "mHC before and after a sublayer"
    yield _row(what, "µs", "fused", p["median_us"], GLUE_US[p["subject"]])
    if p["subject"] in GLUE_KERNELS:
        yield _row(what, "kernels", "fused", p["kernels"], GLUE_KERNELS[p["subject"]])


def _row(what: str, unit: str, where: str, found: float, target: float, least: bool = False) -> dict:
    met = found >= target if least else found <= target
    return {
        "what": what,
        "unit": unit,
        "where": where,
        "found": found,
        "target": target,
        "least": least,
        "met": "met" if met else "missed",
    }
