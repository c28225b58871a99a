"""The report's figures of kernels: what each compiled configuration needs on each target, and the throughput sweep."""

from statistics import median

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from ..records import Record
from . import draw
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
    status = p["status"] if p["status"] == "pass" else f"{p['status']}: {p['reason']}"
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
    fig = _draw_heat(shown, targets, cells, set(pinned))
    return draw.figure(fig, alt, caption, build_table(rows))


def _name(row: dict) -> str:
    return f"{row['kernel']}  {row['config']}"


def _draw_heat(names, targets, cells, pinned):
    left = min(5.0, 0.3 + 0.066 * max(map(len, names)))
    with draw.canvas(left + 1.35 * len(targets) + 0.2, 0.6 + 0.33 * len(names)) as fig:
        axes = fig.subplots()
        for y, name in enumerate(names):
            for x, target in enumerate(targets):
                if (name, target) in cells:
                    _draw_cell(axes, x, y, cells[name, target])
        axes.set(xlim=(-0.5, len(targets) - 0.5), ylim=(len(names) - 0.5, -0.5))
        axes.set_xticks(range(len(targets)), targets, color=draw.INK)
        axes.set_yticks(range(len(names)), names, fontsize=8, color=draw.INK)
        for label, name in zip(axes.get_yticklabels(), names):
            label.set_fontweight("bold" if name in pinned else "normal")
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
    return fig


def _draw_cell(axes, x: int, y: int, p: dict) -> None:
    sound = p["status"] == "pass" and p.get("fits") is not False
    share = p["shared"] / p["shared_limit"] if p.get("shared") is not None and p.get("shared_limit") else 0.0
    fill = SHADES(min(share, 1.0)) if sound else draw.FILL["fail"]
    edge = draw.RULE if sound else draw.EDGE["fail"]
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.44), 0.96, 0.88, facecolor=fill, edgecolor=edge, hatch="" if sound else "//")
    )
    if p["status"] != "pass":
        text = p["status"].replace("_", " ")
    else:
        spills = f" +{p['spills']} B spilt" if p.get("spills") else ""
        text = f"{p['registers']} reg{spills}\n{p['shared'] / 1024:.0f} KB"
    box = None if sound else dict(facecolor="white", edgecolor="none", pad=0.6)
    axes.text(x, y, text, ha="center", va="center", fontsize=7, color=draw.INK, bbox=box, linespacing=1.05)


def sweep_table(records: list[Record]) -> Block:
    rows = []
    for r in (r for r in records if r.kind == "sweep"):
        p, us = r.payload, r.samples.get("us", [])
        timed = [f"{median(us):.1f}", f"{min(us):.1f} to {max(us):.1f}", len(us)] if us else [None, None, None]
        status = r.status if not r.reason else f"{r.status}: {r.reason}"
        rows.append([
            p.get("kernel", ""), p.get("batch"), p.get("context"), status, *timed, _round(p.get("floor_us"), 1),
            f"{p['share']:.0%}" if p.get("share") else None, _round(p.get("gbps"), 0), _round(p.get("tflops"), 1),
            _round(p.get("tokens_per_second"), 0),
        ])  # fmt: skip
    columns = ["Kernel", "Batch", "Context", "Status", "Median (µs)", "Spread (µs)", "Samples", "Floor (µs)",
               "Of floor", "GB/s", "TFLOP/s", "tok/s"]  # fmt: skip
    return table(columns, rows)


def _round(value, digits: int) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def sweep(records: list[Record]) -> Block:
    """Time of one call over batch, a panel a context: median, min to max, and the floor (no call can be faster)."""
    points = [r for r in records if r.kind == "sweep" and r.samples.get("us")]
    if not points:
        reasons = dict.fromkeys(r.reason for r in records if r.kind == "sweep" and r.reason)
        return paragraph(f"No speed was measured: {'; '.join(reasons) or 'no sweep point was planned'}.")
    contexts = sorted({r.payload["context"] for r in points})
    kernels = list(dict.fromkeys(r.payload["kernel"] for r in points))
    best = max(points, key=lambda r: r.payload.get("tokens_per_second", 0.0)).payload
    alt = (
        f"Time over batch for {', '.join(kernels)}, one panel for each context ({', '.join(map(str, contexts))}). "
        f"Most tokens a second: {best.get('tokens_per_second', 0.0):,.0f} with {best['kernel']}, "
        f"batch {best['batch']}, context {best['context']}."
    )
    caption = (
        "Median of all samples of one graph replay; bars span the fastest and slowest sample. Dotted: the floor, from "
        "bytes and FLOPs over what the GPU can move and compute."
    )
    return draw.figure(_draw_sweep(points, contexts, kernels), alt, caption, sweep_table(records))


def _draw_sweep(points, contexts, kernels):
    columns = min(3, len(contexts))
    lines = -(-len(contexts) // columns)
    with draw.canvas(max(5.2, 3.4 * columns), 2.9 * lines + 0.4) as fig:
        grid = fig.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, context in zip(grid.flat, contexts):
            here = [r for r in points if r.payload["context"] == context]
            for kernel, style in zip(kernels, draw.SERIES * len(kernels)):
                _draw_series(
                    axes, sorted((r for r in here if r.payload["kernel"] == kernel), key=_batch), kernel, style
                )
            axes.set(xscale="log", yscale="log", title=f"context {context:,}", xlabel="batch (rows)")
            batches = sorted({_batch(r) for r in here})
            axes.set_xticks(batches, [str(b) for b in batches])
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
            axes.grid(True)
        for axes in grid.flat[len(contexts) :]:
            axes.set_visible(False)
        for row in grid:
            row[0].set_ylabel("µs a call")
        fig.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
    return fig


def _batch(r: Record) -> int:
    return r.payload["batch"]


def _draw_series(axes, points: list[Record], kernel: str, style: tuple) -> None:
    colour, marker, line = style
    x = [_batch(r) for r in points]
    mid = [median(r.samples["us"]) for r in points]
    below = [m - min(r.samples["us"]) for m, r in zip(mid, points)]
    above = [max(r.samples["us"]) - m for m, r in zip(mid, points)]
    axes.errorbar(
        x, mid, yerr=[below, above], color=colour, marker=marker, linestyle=line, markersize=5, capsize=3, label=kernel
    )
    floors = [(b, r.payload["floor_us"]) for b, r in zip(x, points) if r.payload.get("floor_us")]
    if floors:
        axes.plot(*zip(*floors), color=colour, linestyle=(0, (1, 1.5)), linewidth=1.4, label=f"floor of {kernel}")
