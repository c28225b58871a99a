"""What was asked of the indexer and the glue beside what was found: a row for each target, met or missed."""

from ..measure.targets_parts import BATCH, judged
from . import words
from .block import Block, paragraph, table

ASKED = f"asked of the indexer and the glue on an H200, at batch {BATCH}"


def asked(points: list[dict]) -> Block:
    """A table of all targets that the points have, after a sentence that counts them.

    points: of measure.rows.sweep_points.
    """
    rows = judged(points)
    if not rows:
        return paragraph(f"No figure that was {ASKED} (of the indexer with full lengths), can be judged here.")
    cells = [[row["what"], row["where"], _figure(row, "found"), _target(row), _badge(row)] for row in rows]
    columns = ["What", "Where", "Found", f"Asked at batch {BATCH}", "Met"]
    return paragraph(met(points)) + table(columns, cells, stack=True)


def met(points: list[dict]) -> str:
    """How many of the targets were met, and each that was missed with what was found; "" where no point has one."""
    rows = judged(points)
    if not rows:
        return ""
    missed = [row for row in rows if row["met"] == "missed"]
    said = f"{len(rows) - len(missed)} of {words.counted(len(rows), 'target')} met ({ASKED})."
    if not missed:
        return said
    each = [f"{row['what']} {_figure(row, 'found')} ({row['where']}; asked: {_target(row)})" for row in missed]
    return f"{said} Missed: {'; '.join(each)}."


def _figure(row: dict, name: str) -> str:
    """Four figures, so that what was just missed does not read like its target."""
    unit, value = row["unit"], row[name]
    if unit == "share":
        return f"{100 * value:.4g} %"
    return f"{value:.4g} {unit}".rstrip()


def _target(row: dict) -> str:
    return f"{'≥' if row['least'] else '≤'} {_figure(row, 'target')}"


def _badge(row: dict):
    return words.badge("pass" if row["met"] == "met" else "fail", row["met"])
