"""Matplotlib to one self-contained <figure>: SVG in a data URI, text alternative, caption, data table."""

import base64
import io
from contextlib import contextmanager

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


def figure(fig: Figure, alt: str, caption: str, data: Block) -> Block:
    """Wrap a drawn Figure: `alt` says what is to be seen, `caption` what it means, `data` is the table behind it."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(RC):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    source = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    width = round(fig.get_figwidth() * 96)
    html = Markup(
        '<figure><div class="scroll" tabindex="0"><img src="{}" width="{}" alt="{}"></div>'
        "<figcaption>{}</figcaption>{}</figure>"
    ).format(source, width, alt, caption, Markup(details("Data of this figure", data).html))
    return Block(str(html), f"{caption}\n{data.text}")
