"""Points of the sweep that several tests ask for."""

from capturebook.measure import sweep_point

POINT = {"batch": 3, "heads": 16, "context": 1024, "cache": "bf16", "rates": {}}
SMALL = sweep_point.Size(sets=2, window_slots=3 * 256, extra_slots=3 * 256)


def at(batch, context, cache="bf16", shape="flash"):
    return {**POINT, "batch": batch, "context": context, "cache": cache, "shape": shape}
