"""The decode step: its layers by rung, the whole model by class of work, its throughput over concurrency."""

from ..measure.decode_model import alike, known, share
from ..measure.kernel_classes import CLASSES
from ..measure.rows import sweep_points
from ..records import Record
from . import draw, words
from .block import Block, paragraph, table
from .decode_rank import extrapolated, of_rank, rank
from .decode_rank import layers as layers_of
from .figures_decode_jobs import jobs
from .figures_decode_layers import between, fullest, layers
from .figures_decode_story import capacity, told


def decode(records: list[Record], gpu: str) -> Block:
    """All of it, for the records of a sweep of the decode step on this GPU; a sentence for those of another subject."""
    points, beside = sweep_points(records), jobs(records)
    if not any(p.get("layer") for p in points):
        return beside or paragraph("Another subject: no layer of the decode step was asked for.")
    found, of = layers(points) + model(points), rank([p for p in points if p.get("layer")])
    if rows := alike(points):
        found += throughput(rows, of)
    found += told(known(points), gpu, of)
    return found + beside + capacity() if beside else found + capacity()


def model(points: list[dict]) -> Block:
    """All 43 layers and the ends, extrapolated: GPU time by class as bars, and tokens a second.

    Where no layer of the sliding window alone was timed, the other 41, and it is said of which rows.
    """
    rows = known(points)
    if not rows:
        return paragraph("The whole model is not extrapolated: that takes a timed layer of each kind at one point.")
    columns = ["Rung", "Layers", "Batch", "Context", "ms a token", "tok/s", *CLASSES, "Between kernels, ms", "Launches"]
    of = rank([p for p in points if p.get("layer")])
    data = table(
        columns,
        [_model_row(row) for row in rows],
        f"Time of {extrapolated(rows)}; shares of GPU time and launches are of the layers alone, those of embedding "
        f"and head not among them; {of}",
    )
    key = fullest(rows)
    rows = [row for row in rows if (row["batch"], row["context"], row["max_context"]) == key]
    best = max(rows, key=lambda row: row["tokens_per_second"])
    alt = f"GPU time of a step, {extrapolated(rows)}, by class of work for {words.counted(len(rows), 'rung')}; "
    alt += f"most tokens a second: {best['tokens_per_second']:,.0f} with {best['variant']} at batch {best['batch']}."
    caption = (
        f"At {words.point(rows[0])}, extrapolated to {extrapolated(rows)}, from a layer of each kind of 2 + 21 + 20 "
        f"({of}). Frames: the time of a step. Bars: GPU time of the layers by class in profiled "
        f"replays, {_shorter(rows)}; rungs with side streams have a frame alone. Sampling, communication and "
        "scheduling are not in it."
    )
    return draw.figure(_draw(rows, 7.2), alt, caption, data, _draw(rows, draw.NARROW))


def _shorter(rows: list[dict]) -> str:
    """By how much the bars of such rows are shorter than the time."""
    found = [gap / row["us"] for row in rows if (gap := between(row)) is not None]
    if not found:
        return "none profiled here"
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (min(found), max(found)))
    return f"shorter than the time by what lies between kernels, {' to '.join(ends)} % of it, and by embedding and head"


def _model_row(row: dict) -> list:
    shares = [f"{share(row, c):.0%}" for c in CLASSES] if row["classes"] else [None] * len(CLASSES)
    launches = sum(row["launches"].values()) if row["launches"] else row["nodes"]
    place = f"{row['context']} of {row['max_context']}"
    speed = [f"{row['us'] / 1e3:.2f}", f"{row['tokens_per_second']:,.0f}"]
    return [
        row["variant"],
        layers_of(row),
        row["batch"],
        place,
        *speed,
        *shares,
        None if between(row) is None else f"{between(row) / 1e3:.2f}",
        f"{launches:,.0f}" if launches else None,
    ]


def _draw(rows: list[dict], width: float):
    names = [row["variant"] for row in rows]
    colours = ("#d55e00", "#cc79a7", "#009e73", "#0072b2", "#e69f00", "#b9c2cb")
    with draw.canvas(width, 0.5) as fig:
        axes = fig.subplots()
        middles = draw.named_rows(axes, names, 1, 0.17)
        most = max(max(row["us"], sum((row["classes"] or {}).values())) for row in rows) / 1e3
        axes.set_xlim(0, most * 1.02)
        for text in axes.texts:
            text.set_x(0)
        for row, middle in zip(rows, middles):
            left = 0.0
            for group, colour in zip(CLASSES, colours):
                if row["classes"]:
                    axes.barh(middle, row["classes"][group] / 1e3, 0.17, left, color=colour, label=group)
                    left += row["classes"][group] / 1e3
            axes.barh(middle, row["us"] / 1e3, 0.17, fill=False, edgecolor=draw.MUTED, label="total")
        axes.set_xlabel("ms of a step")
        handles, labels = axes.get_legend_handles_labels()
        seen = dict(zip(labels, handles))
        fig.legend(seen.values(), seen, loc="outside lower left", ncols=3 if width < 5 else 7, frameon=False)
    return fig


def throughput(rows: list[dict], of: str) -> Block:
    """Tokens a second of the model over concurrency and context, with the first rung and with the last, extrapolated.

    rows: of `alike`, so that places are compared in the same layers; of: what they were measured of. At other maximum
    contexts: in the table alone.
    """
    by_place: dict[tuple, list[dict]] = {}
    for row in rows:
        by_place.setdefault((row["max_context"], row["context"], row["batch"]), []).append(row)
    ends = {place: (here[0], max(here, key=_speed)) for place, here in by_place.items()}
    shown = [
        [
            batch, f"{context} of {most}", f"{before['us'] / 1e3:.2f}", f"{before['tokens_per_second']:,.0f}",
            f"{after['us'] / 1e3:.2f}", f"{after['tokens_per_second']:,.0f}", f"{before['us'] / after['us']:.1f}x",
            after["variant"], _nodes(before, after),
        ]
        for (most, context, batch), (before, after) in sorted(ends.items())
    ]  # fmt: skip
    columns = [
        "Batch",
        "Context",
        f"{rows[0]['variant']}, ms",
        "tok/s",
        "Best, ms",
        "tok/s",
        "Gain",
        "Best rung",
        "Graph nodes",
    ]
    said = f"A token, extrapolated to {extrapolated(rows)}; graph nodes are of the layers alone; {of}"
    data = table(columns, shown, said)
    if len({batch for _, _, batch in ends}) == 1:
        return data
    most = min(place[0] for place in ends)
    lines = {place: pair for place, pair in ends.items() if place[0] == most}
    top, one = max((pair[1] for pair in lines.values()), key=_speed), of_rank(rows[0]["tp"])
    alt = f"Tokens a second over batch, a line for each context, dashed with {rows[0]['variant']}, solid with the best "
    alt += f"rung; most: {top['tokens_per_second']:,.0f} at {words.point(top)}."
    caption = (
        f"Tokens a second of {one} over concurrency, extrapolated to {extrapolated(rows)}: dashed with stock parts, "
        f"solid with the best rung, room for {most:,} tokens."
    )
    if rows[0]["tp"] > 1:
        caption += (
            " All ranks work on the same tokens, so that a server gives less than this: communication between them, "
            "which takes more of a step the faster the rest gets, is not in it."
        )
    return draw.figure(_lines(lines, one, 6.4), alt, caption, data, _lines(lines, one, draw.NARROW))


def _speed(row: dict) -> float:
    return row["tokens_per_second"]


def _nodes(before: dict, after: dict) -> str | None:
    """Nodes of a step's graphs with either rung: what is launched, and waits."""
    both = before["nodes"], after["nodes"]
    return " to ".join(f"{nodes:,.0f}" for nodes in both) if all(both) else None


def _lines(ends: dict[tuple, tuple[dict, dict]], of: str, width: float):
    with draw.canvas(width, 3.1) as fig:
        axes = fig.subplots()
        contexts = sorted({context for _, context, _ in ends})
        for context, (colour, marker, _) in zip(contexts, draw.SERIES * len(contexts)):
            here = sorted((batch, pair) for (_, at, batch), pair in ends.items() if at == context)
            batches = [batch for batch, _ in here]
            for which, style in ((0, "--"), (1, "-")):
                speeds = [pair[which]["tokens_per_second"] for _, pair in here]
                label = f"{context:,} tokens" if which else None
                axes.plot(batches, speeds, style, marker=marker, color=colour, label=label, markersize=4)
        axes.set(xscale="log", yscale="log", xlabel="batch (requests)", ylabel=f"tok/s of {of}")
        sizes = sorted({batch for _, _, batch in ends})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.minorticks_off()
        axes.grid(True)
        fig.legend(loc="outside lower left", ncols=2 if width < 5 else 4, frameon=False)
    return fig
