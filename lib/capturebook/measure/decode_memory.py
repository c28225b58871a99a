"""What a point of the decode step's sweep takes of the GPU's memory, by arithmetic: one that cannot fit is not begun.

The least that it takes: what is made on the way is counted as the judge's chunks alone, so a point that this lets pass
may still run out, and is skipped then.
"""

from math import prod

from .kv_capacity import PAGE, RATIO, row_bytes

GIB = 2**30
WORK = 2 * GIB
"""Bytes of what the judge gathers at a time (`reference.AT_ONCE`), and of what it makes of that."""

VALUES = 512
"""Of a row of a cache, of either size of layer."""


def needed(layer: str, step: dict, batch: int, context: int, layers: int) -> dict[str, int]:
    """Bytes of weights, of caches and rings, of one layer's in float64, and of what the judge makes on its way.

    layer: kind of layer; step: of `decode_point.DEFAULTS`; layers: of this kind in the step.
    """
    stored, values = caches(layer, step, batch, context)
    return {
        "weights": layers * weight_bytes(layer, step),
        "caches": layers * stored,
        "judge": 8 * values,
        "work": WORK,
    }


def weight_bytes(layer: str, step: dict) -> int:
    """Bytes of one layer's weights as `subjects.decode_step.weights.draw` makes them."""
    from ..subjects.decode_step.shapes import SIZES
    from ..subjects.decode_step.weights import names_of

    found = 0
    for name, (size, what) in names_of(SIZES[step["size"]].rank(step["tp"]), layer, step["routing"]).items():
        if step["experts"] == "fp8" and name.startswith("experts."):
            found += prod(size) + 4 * prod(size[:-1])  # and a scale for each row
        else:
            found += prod(size) * (2 if what == "linear" and not name.endswith(".mix") else 4)
    return found


def caches(layer: str, step: dict, batch: int, context: int) -> tuple[int, int]:
    """(bytes, values) of one layer's caches and bf16 rings, with pages for `context` tokens of each request."""
    from ..subjects.decode_step.shapes import SIZES

    index = SIZES[step["size"]].index_dim
    rows = batch * PAGE
    stored, values = rows * row_bytes(step["cache"], PAGE), rows * VALUES
    if layer == "swa":
        return int(stored), values
    pages = batch * -(-context // PAGE) + 1
    rows = pages * (PAGE // RATIO[layer])
    stored += rows * row_bytes(step["cache"], PAGE // RATIO[layer])
    values += rows * VALUES
    ring = {"csa": 8 * 4 * (VALUES + index), "hca": 128 * 2 * VALUES}[layer] * batch
    if layer == "csa":
        stored += rows * {"bf16": 2 * index, "fp8": index + 4}[step["keys"]]
        values += rows * index
    return int(stored + 2 * ring), values + ring


def misfit(need: dict[str, int], free: int, drawn: bool, memory_gib: float = 0.0) -> str:
    """Why a point does not fit, in one line; "" if it does. free: bytes of the GPU that nothing has; drawn: the weights
    are there already, and not free; memory_gib: that a point may use, 0 for all that is free."""
    room = free + (need["weights"] if drawn else 0)
    room = min(room, int(memory_gib * GIB) or room)
    if sum(need.values()) <= room:
        return ""
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in need.items())
    return f"does not fit: {sum(need.values()) / GIB:.1f} GiB at least ({parts}), {room / GIB:.1f} to be used"
