"""The report's figure of the throughput sweep: time over batch, the spread of the samples, and the floor."""

from statistics import median

from markupsafe import Markup

from ..measure.rows import entries_of
from . import draw, words
from .block import Block, paragraph, table

METHOD = "One attention call inside a captured graph, on inputs that are not in the cache"
WORK = "the bytes and FLOPs of the call"


def sweep_table(points: list[dict]) -> Block:
    """Every point of the sweep (see measure.rows.sweep_points), those that were not timed with their reason."""
    columns = ["Kernel", "Tuning", "Batch", "Context", "Status", "Median (µs)", "Fastest to slowest (µs)", "Samples",
               "Floor (µs)", "Times the floor", "Bound by", "GB/s", "TFLOP/s", "tok/s", "Configuration"]  # fmt: skip
    rows = [_row(p) for p in points]
    if any(map(entries_of, points)):  # other steps have no lists
        columns.insert(4, "Entries")
        rows = [[*row[:4], words.entries([p]), *row[4:]] for row, p in zip(rows, points)]
    return table(columns, rows)


def _row(p: dict) -> list:
    us = p["us"]
    timed = [f"{median(us):.1f}", f"{min(us):.1f} to {max(us):.1f}", len(us)] if us else [None, None, None]
    shown = words.badge(p["status"], p["status"].replace("_", " "))
    status = Markup("{} {}").format(shown, p["reason"]) if p["reason"] else shown
    return [
        p["variant"], p["tuning"], p["batch"], _context(p), status, *timed, _figures(p.get("floor_us")),
        words.of_floor(p), p.get("floor_bound"), _round(p.get("gbps"), 0),
        _round(p.get("tflops"), 1), _round(p.get("tokens_per_second"), 0), p.get("config"),
    ]  # fmt: skip


def _context(p: dict) -> int | str | None:
    return f"{p['context']} of {p['max_context']}" if p.get("max_context") else p["context"]


def _round(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def _figures(value: float | None) -> str | None:
    """Three figures: floors go from hundredths of a microsecond to hundreds."""
    return None if value is None else f"{value:,.3g}"


def sweep(points: list[dict]) -> Block:
    """Time of one call: median, fastest to slowest sample, and the floor.

    Over batch, with a panel for each context; over context, with a panel for each maximum, where there is one batch.
    """
    timed = [p for p in points if p["us"]]
    if not timed:
        reasons = dict.fromkeys(p["reason"] for p in points if p["reason"])
        return paragraph(f"No speed was measured: {'; '.join(reasons) or 'no sweep point was planned'}.")
    if all(p.get("layer") for p in timed):
        return paragraph("Layers of the decode step: see there. Their points are in the table.")
    axis = "context" if len({p["batch"] for p in timed}) == 1 < len({p["context"] for p in timed}) else "batch"
    named = [_panel(p, axis)[2] for p in points]  # shapes as they were asked for, sizes by number
    panels = {_panel(p, axis) for p in timed}
    panels = sorted(panels, key=lambda panel: [named.index(panel[2]), panel[0] or 0, panel[1] or 0])
    variants = list(dict.fromkeys(_series(p) for p in timed))
    best = max(timed, key=lambda p: p["tokens_per_second"] or 0)
    alt = (
        f"Time over {axis} for {', '.join(variants)}{_panels(panels, axis)}. "
        f"Most tokens a second: {best['tokens_per_second'] or 0:,.0f} with {best['variant']}, {words.point(best)}."
    )
    sources = words.listed(list(dict.fromkeys(p["floor_source"] for p in timed if p.get("floor_source"))) or ["none"])
    caption = (
        f"{_said(timed, 'method', METHOD)}: median of all samples; bars span the fastest and slowest. Dotted: the "
        f"floor, {_said(timed, 'work', WORK)}, at what the GPU reaches (rates: {sources}). "
        f"tok/s means {_said(timed, 'tokens_per_second_means', 'batch over time')}."
    )
    if any(map(entries_of, timed)):
        caption += f" Entries that a request reads, on average: {_entries(timed)}."
    missed = list(dict.fromkeys(line for p in timed for line in p.get("left_out", [])))
    if missed:
        caption += f" Left out: {words.listed(missed)}."
    wide = _draw(timed, axis, panels, variants, min(3, len(panels)))
    return draw.figure(wide, alt, caption, sweep_table(points), _draw(timed, axis, panels, variants, 1, draw.NARROW))


def _panel(p: dict, axis: str) -> tuple:
    """What a panel is for: the sizes of a point that its horizontal axis does not show."""
    lists = (p["lists"], "" if p["cache"] == "v32" else p["cache"]) if p.get("lists") else ()
    if p.get("key_format"):
        lists = (f"{p['key_format']} keys", f"{p['lengths']} lengths" if p.get("lengths") else "")
    shape = f"{p['layer']} layer" if p.get("layer") else ", ".join(word for word in lists if word)
    return (p["context"] if axis == "batch" else p["batch"], p.get("max_context"), shape)


def _series(p: dict) -> str:
    """What a line is called: the panels of sparse MLA differ in format, so its variants need not say theirs."""
    if not p.get("lists"):
        return p["variant"]
    return "FlashMLA" if p["kernel"].startswith("flashmla") else p["kernel"]


def _title(panel: tuple, axis: str) -> str:
    """The shape on a line of its own: with the sizes beside it a title is wider than its panel."""
    size, most, shape = panel
    sizes = [f"{'context' if axis == 'batch' else 'batch'} {size:,}"] if size else []
    sizes += [f"room for {most:,}"] if most else []
    return "\n".join(filter(None, [shape, ", ".join(sizes)]))


def _panels(panels: list[tuple], axis: str) -> str:
    titles = [title.replace("\n", ", ") for title in (_title(panel, axis) for panel in panels) if title]
    return f", one panel for each of: {'; '.join(titles)}" if titles else ""


def _entries(points: list[dict]) -> str:
    """`598 to 601 (V4-Flash, 128 + 512 tokens), ...` of each shape."""
    named = dict.fromkeys(p["lists"] for p in points if p.get("lists"))
    return ", ".join(f"{words.entries([p for p in points if p.get('lists') == name])} ({name})" for name in named)


def _said(points: list[dict], name: str, otherwise: str) -> str:
    """What the points say of themselves; runs made before they said it had the built-in kernels alone."""
    return "; ".join(dict.fromkeys(p.get(name, otherwise) for p in points))


def _draw(points: list[dict], axis: str, panels: list[tuple], variants: list[str], columns: int, width: float = 0.0):
    lines = -(-len(panels) // columns)
    with draw.canvas(width or max(5.2, 3.4 * columns), (2.3 if width else 2.9) * lines + 0.4) as fig:
        grid = fig.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, panel in zip(grid.flat, panels):
            here = sorted((p for p in points if _panel(p, axis) == panel), key=lambda p: p[axis])
            for variant, style in zip(variants, draw.SERIES * len(variants)):
                _draw_series(axes, axis, [p for p in here if _series(p) == variant], variant, style)
            _draw_floor(axes, axis, here)
            label = "batch (rows)" if axis == "batch" else "context (tokens)"
            axes.set(xscale="log", yscale="log", title=_title(panel, axis), xlabel=label)
            sizes = sorted({p[axis] for p in points})
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
            axes.grid(True)
        for number, axes in enumerate(grid.flat):
            axes.set_visible(number < len(panels))
            axes.tick_params(labelbottom=number + columns >= len(panels))
        for row in grid:
            row[0].set_ylabel("µs a call")
        fig.legend(
            *grid.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=2 if width else 4, frameon=False
        )
    return fig


def _draw_series(axes, axis: str, points: list[dict], variant: str, style: tuple) -> None:
    colour, marker, line = style
    mid = [median(p["us"]) for p in points]
    below = [m - min(p["us"]) for m, p in zip(mid, points)]
    above = [max(p["us"]) - m for m, p in zip(mid, points)]
    look = dict(color=colour, marker=marker, linestyle=line, markersize=5, capsize=3)
    axes.errorbar([p[axis] for p in points], mid, yerr=[below, above], label=variant, **look)


def _draw_floor(axes, axis: str, points: list[dict]) -> None:
    """The variants of a point share its floor: they do the same work, but for a part of it that is timed alone."""
    floors = {p[axis]: p["floor_us"] for p in points if p.get("floor_us") and p.get("part", "whole") == "whole"}
    if floors:
        axes.plot(list(floors), list(floors.values()), color="#56636f", linestyle=(0, (1, 1.5)), label="floor")
