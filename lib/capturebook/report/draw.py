"""Matplotlib to one self-contained <figure>: SVG in a data URI, text alternative, caption, data table."""

import base64
import io
from contextlib import contextmanager
from textwrap import wrap

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from .block import Block, details

INK, MUTED, RULE = "#1d2733", "#5b6773", "#d5dbe1"
FILL = {
    "pass": "#d3ece2",
    "wrong": "#ead3e4",
    "fail": "#fadbc8",
    "timeout": "#fbeac2",
    "not_run": "#eef0f2",
    "skipped": "#eef0f2",
}
EDGE = {
    "pass": "#00735a",
    "wrong": "#8a3d78",
    "fail": "#b54708",
    "timeout": "#8a6100",
    "not_run": "#7b8794",
    "skipped": "#7b8794",
}
"""Fills and edges derive from Okabe and Ito's colour-blind safe palette; figures add text or a hatch to each."""
HATCH = {"pass": "", "wrong": "xx", "fail": "", "timeout": "//", "not_run": "...", "skipped": "..."}
SERIES = [("#0072b2", "o", "-"), ("#d55e00", "s", "--"), ("#009e73", "^", "-."), ("#cc79a7", "D", ":")]
"""Colour, marker and line of the first, second... series, so that a plot reads in grey too."""

RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "capturebook",
    "svg.fonttype": "path",
}


@contextmanager
def canvas(width: float, height: float):
    """A Figure of width x height inches with the report's style; text of any content is drawn as it is."""
    with matplotlib.rc_context(RC):
        yield Figure(figsize=(width, height), layout="constrained")


NARROW = 3.7
"""Width in inches of the drawing for a narrow screen."""


def figure(fig: Figure, alt: str, caption: str, data: Block, narrow: Figure | None = None) -> Block:
    """Wrap a drawn Figure: `alt` says what is to be seen, `caption` what it means, `data` is the table behind it.

    `narrow` is the same figure drawn at most NARROW wide, for a narrow screen.
    """
    source, width = _svg(fig), round(fig.get_figwidth() * 96)
    image = Markup('<img src="{}" width="{}" alt="{}">').format(source, width, alt)
    if narrow is not None:
        small = Markup('<source media="(max-width: 640px)" srcset="{}">').format(_svg(narrow))
        image = Markup("<picture>{}{}</picture>").format(small, image)
    html = Markup('<figure><div class="scroll" tabindex="0">{}</div><figcaption>{}</figcaption>{}</figure>').format(
        image, caption, Markup(details("Data of this figure", data).html)
    )
    return Block(str(html), f"{caption}\n{data.text}")


def _svg(fig: Figure) -> str:
    buffer = io.BytesIO()
    with matplotlib.rc_context(RC):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def named_rows(axes, names: list[str], columns: int, tile: float, bold=()) -> list[float]:
    """Lay out rows whose name stands above them, in inches; returns where the middle of each row's tiles lies.

    Columns are 0, 1, ... `columns` - 1, tiles `tile` inches high; names in `bold` are set so.
    """
    middles, y = [], 0.0
    for name in names:
        lines = wrap(name, 48 if name in bold else 54)
        weight = "bold" if name in bold else "normal"
        look = dict(ha="left", va="top", fontsize=7.5, color=INK, linespacing=1.1, fontweight=weight)
        told = axes.text(-0.46, y + 0.04, "\n".join(lines), **look)
        told.set_in_layout(False)
        y += 0.08 + 0.125 * len(lines)
        middles.append(y + tile / 2)
        y += tile + 0.04
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(y, 0.0), yticks=[])
    axes.spines[:].set_visible(False)
    axes.figure.set_figheight(y + axes.figure.get_figheight())
    return middles
