"""What part of the model a decode step was measured of, and of how many of its layers, in words."""

from ..measure.decode_point import DEFAULTS
from ..measure.kv_capacity import HEADS, LAYERS

NAMES = {2: ("two", "half"), 4: ("four", "a quarter"), 8: ("eight", "an eighth")}
"""By ranks that share the model: their number, and what each has of it."""

ALL = sum(LAYERS.values())
LEFT_OUT = "sliding-window layers and ends left out"
ENDS = "embedding and head"

HELD = "requests hold 7/8 of the context that is named, and more"
"""How far requests are (`subjects.decode_step.step.starts`)."""


def rank(points: list[dict]) -> str:
    """Heads, experts and communication of one rank, the formats, and how far requests are; points: of
    `rows.sweep_points`, of one run."""
    step = DEFAULTS | points[0]["step"]  # of a point that never ran only what was asked for is known
    formats = f"experts {step['experts']}, cache {step['cache']}, index keys {step['keys']}; {HELD}"
    if step["tp"] == 1:
        return f"one GPU with all heads and whole experts; {formats}"
    _, part = NAMES[step["tp"]]
    heads = f"{HEADS // step['tp']} heads" if step["size"] == "flash" else f"{part} of the heads"
    return f"{of_rank(step['tp'])}: {heads}, experts at {part} of their width, no communication; {formats}"


def of_rank(tp: int) -> str:
    """`one rank of eight`; `one GPU` for a rank that has no other."""
    return "one GPU" if tp == 1 else f"one rank of {NAMES[tp][0]}"


def layers(row: dict) -> str:
    """Of a row of `decode_model.known`: `43`, or `41 of 43`."""
    return str(ALL) if row["layers"] == ALL else f"{row['layers']} of {ALL}"


def extrapolated(rows: list[dict]) -> str:
    """What such rows are of: all layers and the ends, or which are left out."""
    fewer = next((row for row in rows if row["layers"] != ALL), None)
    if not fewer:
        return f"all {ALL} layers, {ENDS}"
    partly = f"{layers(fewer)} layers, {LEFT_OUT}"
    return partly if all(row["layers"] != ALL for row in rows) else f"all {ALL} layers, {ENDS}, or {partly}"
