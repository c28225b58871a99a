"""The report's figures of captures: which arm ended how, and when each stage ran."""

from datetime import datetime
from textwrap import wrap

from matplotlib.patches import Patch, Rectangle

from ..records import Arm, Record
from . import draw, tables, words
from .block import Block, paragraph, table

PLAIN = Arm()


def arms_matrix(records: list[Record], base: Arm) -> Block:
    """Outcome of every arm: rows are settings of the step, columns are torch.compile x capture.

    A row is named by what it changes in `base`, the question's arm. Several records of one arm (repeats) share a tile;
    outcomes that disagree are both written into it.
    """
    cells: dict[tuple[str, tuple[str, str]], list[Record]] = {}
    changes: dict[str, int] = {}
    for r in records:
        if r.kind == "step" and r.arm is not None and r.arm.variant != "control" and r.role != "feeder":
            row = words.comparable(r.arm, base).changed(compile=base.compile, capture=base.capture)
            name = words.where(row, base)
            changes[name] = len(row.differences(base))
            cells.setdefault((name, (r.arm.compile, r.arm.capture)), []).append(r)
    if not any(r.status in words.RAN for group in cells.values() for r in group):
        return paragraph("No arm was run on this machine, so there is no matrix of outcomes.")
    rows = sorted(changes, key=lambda name: (changes[name], name))
    columns = sorted({column for _, column in cells}, key=_column_order)
    data = table(
        ["Step", *(f"compile {c}, capture {k}" for c, k in columns)],
        [[row, *(_tile(cells.get((row, column), [])) for column in columns)] for row in rows],
    )
    alt = (
        f"Matrix of {len(cells)} arms, {len(rows)} settings of the step by {len(columns)} ways to compile and capture. "
        + "; ".join(_row_words(row, columns, cells) for row in rows)
    )
    caption = (
        "Each tile is one arm in its own process: ✓ passes (replayed with changed inputs and compared), a number is "
        "the CUDA error at the root of the failure. Rows name what they change in the question's arm, which is "
        "outlined. † marks a caveat, named in the evidence."
    )
    asked = (base.compile, base.capture)
    wide, narrow = (f(rows, columns, cells, asked) for f in (_draw_matrix, _draw_narrow_matrix))
    return draw.figure(wide, alt, caption, data, narrow)


def _column_order(column: tuple[str, str]) -> tuple:
    order = ["none", "eager", "aot_eager", "default", "max-autotune-no-cudagraphs", "reduce-overhead", "max-autotune"]
    compiled, capture = column
    return capture == "none", capture, order.index(compiled)


def _tile(group: list[Record]) -> str:
    return words.agreed(group) if group else ""


def _row_words(row: str, columns: list, cells: dict) -> str:
    told = [f"{c}/{k} {_tile(cells[row, (c, k)])}" for c, k in columns if (row, (c, k)) in cells]
    return f"{row}: {', '.join(told)}"


def _draw_matrix(rows, columns, cells, asked):
    names = ["\n".join(wrap(row, 40)) for row in rows]
    left = 0.3 + 0.064 * max(len(line) for name in names for line in name.split("\n"))
    with draw.canvas(left + 0.95 * len(columns) + 0.1, 0.95 + 0.37 * len(rows)) as fig:
        axes = fig.subplots()
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                _draw_tile(axes, x, y, cells.get((row, column), []), row == words.QUESTION and column == asked)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.set_xticks(range(len(columns)), [_column_name(*c) for c in columns], fontsize=8, color=draw.INK)
        axes.set_yticks(range(len(rows)), names, fontsize=8, color=draw.INK, linespacing=1.2)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        for label in axes.get_yticklabels():
            label.set_fontweight("bold" if label.get_text() == words.QUESTION else "normal")
    return fig


def _draw_narrow_matrix(rows, columns, cells, asked):
    with draw.canvas(draw.NARROW, 1.35) as fig:
        axes = fig.subplots()
        middles = draw.named_rows(axes, rows, len(columns), 0.28, bold=(words.QUESTION,))
        for row, y in zip(rows, middles):
            for x, column in enumerate(columns):
                group = cells.get((row, column), [])
                _draw_tile(axes, x, y, group, row == words.QUESTION and column == asked, 0.28, 7.5)
        names = [_column_name(*c) for c in columns]
        axes.set_xticks(range(len(columns)), names, fontsize=7.5, color=draw.INK, rotation=90)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    return fig


def _column_name(compiled: str, capture: str) -> str:
    name = {"none": "not compiled", "max-autotune-no-cudagraphs": "max-autotune-\nno-cudagraphs"}.get(
        compiled, compiled
    )
    return f"{name}\n{'not captured' if capture == 'none' else 'captured' if capture == 'global' else capture}"


def _draw_tile(axes, x: int, y: float, group: list[Record], asked: bool, height: float = 0.84, size: float = 9) -> None:
    if not group:
        axes.plot(x, y, ".", color=draw.RULE, markersize=3)
        return
    status = words.worst(group)
    box = dict(xy=(x - 0.46, y - height / 2), width=0.92, height=height, hatch=draw.HATCH[status])
    axes.add_patch(Rectangle(facecolor=draw.FILL[status], edgecolor=draw.EDGE[status], linewidth=0.8, **box))
    if asked:
        axes.add_patch(Rectangle(facecolor="none", edgecolor=draw.INK, linewidth=2.2, **{**box, "hatch": ""}))
    text = _tile(group).replace("pass", "✓")
    size = size if len(text) < 6 else min(size - 1, 44 / len(text)) if size < 9 else size if len(text) < 9 else 7
    axes.text(x, y, text, ha="center", va="center", fontsize=size, fontweight="bold", color=draw.INK)


def timeline(records: list[Record]) -> Block:
    """When each notebook and each probe ran, from the records' own stamps; probes side by side share lanes."""
    timed = [r for r in records if r.status in words.RAN and r.seconds > 0]
    if not timed:
        return paragraph("Nothing was run, so there is no timeline.")
    books = [r for r in timed if r.kind == "notebook"]
    probes = sorted((r for r in timed if r.kind != "notebook"), key=lambda r: _stamp(r.started))
    start = min(_stamp(r.started) for r in timed)
    lanes = _lanes(probes)
    span = max(_stamp(r.ended) for r in timed) - start
    rows = [[r.notebook, "notebook", _badge(r), f"{_stamp(r.started) - start:.1f}", f"{r.seconds:.1f}"] for r in books]
    rows += [
        [tables.what(r, PLAIN), r.kind, _badge(r),
         f"{_stamp(r.started) - start:.1f}", f"{r.seconds:.1f}"] for r in probes
    ]  # fmt: skip
    data = table(["What", "Kind", "Status", "Start (s)", "Took (s)"], rows)
    seconds = {kind: sum(r.seconds for r in probes if r.kind == kind) for kind in dict.fromkeys(r.kind for r in probes)}
    longest = ", ".join(f"{kind} {total:.0f} s" for kind, total in seconds.items())
    stages = ", ".join(f"{stage} {total:.0f} s" for stage, total in stage_seconds(probes).items())
    alt = (
        f"Timeline of {span:.0f} seconds: {words.counted(len(books), 'notebook')} and "
        f"{words.counted(len(probes), 'probe')} in {words.counted(len(lanes), 'lane')}. "
        f"Summed by kind: {longest}."
    )
    beside = f"up to {len(lanes)} side by side" if len(lanes) > 1 else "one after the other"
    caption = f"{words.counted(len(probes), 'probe')}, each its own process, {beside}, in {span:.0f} s."
    if stages:
        caption += f" Summed by stage: {stages}."
    wide, narrow = (_draw_timeline(books, lanes, start, span, width) for width in (8.6, draw.NARROW))
    return draw.figure(wide, alt, caption, data, narrow)


def _badge(r: Record):
    return words.badge(r.status, r.status.replace("_", " "))


def stage_seconds(records: list[Record]) -> dict[str, float]:
    """Seconds spent in each stage, summed over the probes whose records hold a timeline."""
    totals: dict[str, float] = {}
    for r in records:
        reached = [(line["stage"], line["s"]) for line in r.effective.get("timeline", [])] + [("done", r.seconds)]
        for (stage, begin), (_, end) in zip(reached, reached[1:]):
            totals[stage] = totals.get(stage, 0.0) + max(0.0, end - begin)
    return {stage: total for stage, total in totals.items() if stage != "done"}


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _lanes(records: list[Record]) -> list[list[Record]]:
    """Pack records, sorted by start, into as few rows as keep them apart."""
    lanes: list[list[Record]] = []
    for r in records:
        free = next((lane for lane in lanes if _stamp(lane[-1].ended) <= _stamp(r.started)), None)
        if free is None:
            lanes.append([r])
        else:
            free.append(r)
    return lanes


def _draw_timeline(books, lanes, start, span, width):
    narrow = width <= draw.NARROW
    with draw.canvas(width, 0.9 + 0.3 * len(books) + 0.22 * len(lanes)) as fig:
        axes = fig.subplots()
        for y, r in enumerate(books):
            axes.barh(
                y,
                r.seconds,
                left=_stamp(r.started) - start,
                height=0.66,
                color="#dbe4ee",
                edgecolor="#5b6773",
                linewidth=0.6,
            )
            axes.text(
                _stamp(r.started) - start + r.seconds + span * 0.006,
                y,
                f"{r.seconds:.0f} s",
                va="center",
                fontsize=8,
                color=draw.MUTED,
            )
        for y, lane in enumerate(lanes, len(books)):
            for r in lane:
                axes.barh(y, r.seconds, left=_stamp(r.started) - start, height=0.7, facecolor=draw.FILL[r.status],
                          edgecolor=draw.EDGE[r.status], hatch=draw.HATCH[r.status], linewidth=0.6)  # fmt: skip
        names = [r.notebook for r in books] + [
            f"lane {i}" if narrow else f"probes, lane {i}" for i in range(1, len(lanes) + 1)
        ]
        axes.set_yticks(range(len(names)), names, fontsize=8, color=draw.INK)
        axes.set(
            xlabel="seconds since the first record",
            xlim=(0, span * (1.14 if narrow else 1.06)),
            ylim=(len(names) - 0.4, -0.6),
        )
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        seen = dict.fromkeys(r.status for lane in lanes for r in lane)
        patches = [
            Patch(
                facecolor=draw.FILL[s],
                edgecolor=draw.EDGE[s],
                hatch=draw.HATCH[s],
                label=f"{words.STATUSES[s][0]} {s.replace('_', ' ')}",
            )
            for s in seen
        ]
        fig.legend(handles=patches, loc="outside lower right", ncols=4, frameon=False, fontsize=8)
    return fig
