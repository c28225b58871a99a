"""What sparse MLA decode is to reach on an H200, and whether a point does. Figures of the issue that asked for it."""

from .rows import entries_of

GPU = "H200"

NEAR = 0.03
"""A time within this share of its target is equal to it: so much differs from one start of a machine to the next."""

OVER_FLASHMLA = {
    ("flash", "fp8"): {1: 0.65, 8: 0.85, 32: 0.91, 64: 0.74, 128: 0.99, 256: 0.99},
    ("pro", "fp8"): {1: 0.75, 8: 0.9, 64: 1.25, 256: 1.2},
}
"""Most that a call may take, as a share of FlashMLA's in the same process: {(shape, cache): {batch: ratio}}."""

ENTRIES = {"flash": 640, "pro": 1152}
"""What a request reads where the targets were set, by shape: 128 tokens of the window and all of the list of others."""

ALIKE = 7 / 8
"""From this share of them on a ratio counts, whose two times are of the same inputs. A time meets its target at all of
them only: with fewer it would by doing less. If it misses it even so, it is missed."""

MICROSECONDS = {("flash", "bf16"): {1: 7.0, 8: 11.5, 32: 20.0, 64: 28.0, 128: 38.0, 256: 70.0}}
"""Most that a call may take where no peer reads the same format."""

SIMT_OVER = {("flash", "bf16"): {1: 3.5, 64: 30.0}}
"""Least that the stock kernel takes, in calls of the tensor-core kernel."""

SIMT_MICROSECONDS = {("flash", "bf16"): {1: 28.0, 64: 1200.0}}
"""Most that the stock kernel may take itself, so that it is no straw man."""


def judged(point: dict, ours: float, simt: float | None = None, flashmla: float | None = None) -> list[dict]:
    """The targets of one point: [{what, found, target, least, met, entries}] of those whose figures are there; us.

    point: as rows.sweep_points has it. met: "met", "equal" (within NEAR), "missed", or "unjudged", where a request read
    too few of the `entries` that the target was set at. None but on an H200.
    """
    if GPU not in point.get("gpu", ""):
        return []
    key, batch = (point["shape"], point["cache"]), point["batch"]
    asked = (
        ("ours / FlashMLA", OVER_FLASHMLA, flashmla and ours / flashmla, False, ALIKE),
        ("ours, µs", MICROSECONDS, ours, False, 1),
        ("SIMT / ours", SIMT_OVER, simt and simt / ours, True, ALIKE),
        ("SIMT, µs", SIMT_MICROSECONDS, simt, False, 1),
    )
    found = []
    for what, targets, value, least, share in asked:
        target = targets.get(key, {}).get(batch)
        if target and value:
            short = target / value if least else value / target
            met = "met" if short <= 1 else "equal" if short <= 1 + NEAR else "missed"
            full = ENTRIES[point["shape"]]
            few = (entries_of(point) or 0) < share * full
            if few and (share < 1 or met != "missed"):
                met = "unjudged"
            found.append({"what": what, "found": value, "target": target, "least": least, "met": met, "entries": full})
    return found
