"""The report's figure of kernels as compiled: what each configuration needs on each target."""

from markupsafe import Markup
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from . import draw, words
from .block import Block, paragraph, table

SHADES = LinearSegmentedColormap.from_list("shared", ["#f7fafc", "#9cc3e0"])
MOST_ROWS = 24


def build_table(rows: list[dict]) -> Block:
    """Every build row: registers and spills by ptxas (bytes), shared memory (bytes) against the target's limit."""
    columns = ["Kernel", "Configuration", "Target", "Status", "Registers", "Spills (B)", "Shared (B)", "Limit (B)",
               "Matrix and copy instructions", "Occupancy", "Fits"]  # fmt: skip
    return table(columns, [_build_row(row) for row in rows])


def _build_row(p: dict) -> list:
    config = f"{p.get('config', '')}{' (pinned)' if p.get('pinned') else ''}"
    counts = {name: count for name, count in p.get("instructions", {}).items() if name != "total"}
    instructions = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
    occupancy = f"{p['occupancy']:.0%}" if p.get("occupancy") is not None else None
    fits = {True: "yes", False: "no"}.get(p.get("fits"))
    shown = words.badge(p["status"], p["status"].replace("_", " "))
    status = shown if p["status"] == "pass" else Markup("{} {}").format(shown, p["reason"])
    return [p["kernel"], config, p["target"], status, p.get("registers"), p.get("spills"), p.get("shared"),
            p.get("shared_limit"), instructions if p["status"] == "pass" else None, occupancy, fits]  # fmt: skip


def build_heat(rows: list[dict]) -> Block:
    """Configurations x targets; the shade is shared memory over the target's limit, the text registers and spills."""
    if not rows:
        return paragraph("No kernel was compiled in this run.")
    names = list(dict.fromkeys(_name(row) for row in rows))
    pinned = list(dict.fromkeys(_name(row) for row in rows if row.get("pinned")))
    shown = names if len(names) <= MOST_ROWS else pinned[:MOST_ROWS]
    targets = sorted({row["target"] for row in rows}, key=lambda t: (len(t), t))
    cells = {(_name(row), row["target"]): row for row in rows}
    misfits = [f"{_name(row)} on {row['target']}" for row in rows if row.get("fits") is False]
    broken = [f"{_name(row)} on {row['target']}" for row in rows if row["status"] in ("fail", "timeout")]
    alt = (
        f"Grid of {len(shown)} kernel configurations by {len(targets)} GPU targets. "
        f"Too large for the target: {'; '.join(misfits) or 'none'}. Did not compile: {'; '.join(broken) or 'none'}. "
        f"With register spills: {sum(bool(row.get('spills')) for row in rows)} of {len(rows)}."
    )
    caption = (
        "Each cell: registers a thread, then shared memory in KB; the shade is its share of what one block may use "
        "there. Hatched: does not fit or did not compile. Bold rows are the pinned configurations."
    )
    if len(shown) < len(names):
        caption += f" Shown: {len(shown)} pinned of {len(names)} configurations; the table has them all."
    wide, narrow = (f(shown, targets, cells, set(pinned)) for f in (_draw_heat, _draw_narrow_heat))
    return draw.figure(wide, alt, caption, build_table(rows), narrow)


def _name(row: dict) -> str:
    return f"{row['kernel']}  {row['config']}"


def _draw_heat(names, targets, cells, pinned):
    # Kernel above configuration: on one line four targets beside them are wider than a page.
    labels = [name.replace("  ", "\n", 1) for name in names]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    left = 0.3 + 0.076 * longest  # inches a bold character of 8 pt
    with draw.canvas(left + 1.35 * len(targets) + 0.2, 0.6 + 0.33 * len(names)) as fig:
        axes = fig.subplots()
        for y, name in enumerate(names):
            for x, target in enumerate(targets):
                if (name, target) in cells:
                    _draw_cell(axes, x, y, cells[name, target])
        axes.set(xlim=(-0.5, len(targets) - 0.5), ylim=(len(names) - 0.5, -0.5))
        axes.set_xticks(range(len(targets)), targets, color=draw.INK)
        axes.set_yticks(range(len(names)), labels, fontsize=8, color=draw.INK, linespacing=1.05)
        for label, name in zip(axes.get_yticklabels(), names):
            label.set_fontweight("bold" if name in pinned else "normal")
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
    return fig


def _draw_narrow_heat(names, targets, cells, pinned):
    with draw.canvas(draw.NARROW, 0.3) as fig:
        axes = fig.subplots()
        for name, y in zip(names, draw.named_rows(axes, names, len(targets), 0.3, bold=pinned)):
            for x, target in enumerate(targets):
                if (name, target) in cells:
                    _draw_cell(axes, x, y, cells[name, target], 0.3)
        axes.set_xticks(range(len(targets)), targets, color=draw.INK)
        axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    return fig


def _draw_cell(axes, x: int, y: float, p: dict, height: float = 0.88) -> None:
    sound = p["status"] == "pass" and p.get("fits") is not False
    share = p["shared"] / p["shared_limit"] if p.get("shared") is not None and p.get("shared_limit") else 0.0
    fill = SHADES(min(share, 1.0)) if sound else draw.FILL["fail"]
    edge = draw.RULE if sound else draw.EDGE["fail"]
    axes.add_patch(
        Rectangle((x - 0.48, y - height / 2), 0.96, height, facecolor=fill, edgecolor=edge, hatch="" if sound else "//")
    )
    if p["status"] != "pass":
        text = p["status"].replace("_", " ")
    else:
        spills = f" +{p['spills']} B spilt" if p.get("spills") else ""
        text = f"{p['registers']} reg{spills}\n{p['shared'] / 1024:.0f} KB"
    box = None if sound else dict(facecolor="white", edgecolor="none", pad=0.6)
    axes.text(x, y, text, ha="center", va="center", fontsize=7, color=draw.INK, bbox=box, linespacing=1.05)
