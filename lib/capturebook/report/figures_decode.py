"""The decode step: a layer's time by rung and class of work, the whole model, the story's numbers, KV capacity."""

from ..measure import amdahl, kv_capacity
from ..measure.decode_model import share, story, whole
from ..measure.kernel_classes import CLASSES
from ..measure.rows import sweep_points
from ..records import Record
from . import draw, words
from .block import Block, details, heading, paragraph, table
from .figures_decode_jobs import jobs

NOT_HERE = "No layer of the decode step was timed here."
RANK = {8: "one rank of eight: 8 heads, experts at an eighth of their width, no communication"}


def decode(records: list[Record]) -> Block:
    """All of it, for the records of a sweep of the decode step; a sentence for those of another subject."""
    points, beside = sweep_points(records), jobs(records)
    if not any(p.get("layer") for p in points):
        return beside or paragraph("Another subject: no layer of the decode step was asked for.")
    found = layers(points) + model(points) + told(points)
    return found + beside + capacity() if beside else found + capacity()


def layers(points: list[dict]) -> Block:
    """One row for each rung at each point of a layer: time, gain over the first rung, GPU time and launches by class.

    points: of `rows.sweep_points`. Rungs with lanes have no classes: their kernels run side by side.
    """
    timed = [p for p in points if p.get("layer") and p["us"]]
    if not timed:
        return paragraph(NOT_HERE)
    columns = ["Layer", "Batch", "Context", "Rung", "µs", "Gain", "tok/s", *(f"{c} µs" for c in CLASSES), "Launches"]
    first = {}
    rows = []
    for p in timed:
        place = (p["layer"], p["batch"], p["context"], p["max_context"])
        first.setdefault(place, p["median_us"])
        classes = [f"{p['classes'][c]:.1f}" for c in CLASSES] if p.get("classes") else [None] * len(CLASSES)
        launches = f"{sum(p['launches'].values()):.0f}" if p.get("launches") else None
        rows.append(
            [
                p["layer"], p["batch"], f"{p['context']} of {p['max_context']}", p["variant"], f"{p['median_us']:.1f}",
                f"{first[place] / p['median_us']:.2f}x", f"{p['tokens_per_second']:,.0f}", *classes, launches,
            ]
        )  # fmt: skip
    return table(columns, rows, f"A layer of V4-Flash on {_rank(timed)}")


def _rank(points: list[dict]) -> str:
    step = points[0]["step"]
    return f"{RANK.get(step['tp'], 'one GPU with all heads and experts')}; experts {step['experts']}, "\
           f"cache {step['cache']}, index keys {step['keys']}"  # fmt: skip


def model(points: list[dict]) -> Block:
    """All 43 layers and the ends, extrapolated: GPU time by class as bars, and tokens a second."""
    rows = whole(points)
    if not rows:
        return paragraph("The whole model is not extrapolated: that takes a timed layer of each kind at one point.")
    columns = ["Rung", "Batch", "Context", "ms a token", "tok/s", *(f"{c}" for c in CLASSES), "Launches"]
    data = table(columns, [_model_row(row) for row in rows])
    best = max(rows, key=lambda row: row["tokens_per_second"])
    alt = f"GPU time of a step by class of work for {words.counted(len(rows), 'rung')}; most tokens a second: "
    alt += f"{best['tokens_per_second']:,.0f} with {best['variant']} at batch {best['batch']}."
    caption = (
        "Extrapolated to 2 + 21 + 20 layers, embedding and head included, from a layer of each kind "
        f"({_rank([p for p in points if p.get('layer')])}). Bars: GPU time by class of a profiled replay; rungs with "
        "side streams have a total alone. Sampling, communication and scheduling are not in it."
    )
    return draw.figure(_draw(rows, 7.2), alt, caption, data, _draw(rows, draw.NARROW))


def _model_row(row: dict) -> list:
    shares = [f"{share(row, c):.0%}" for c in CLASSES] if row["classes"] else [None] * len(CLASSES)
    launches = f"{sum(row['launches'].values()):,.0f}" if row["launches"] else None
    place = f"{row['context']} of {row['max_context']}"
    speed = [f"{row['us'] / 1e3:.2f}", f"{row['tokens_per_second']:,.0f}"]
    return [row["variant"], row["batch"], place, *speed, *shares, launches]


def _draw(rows: list[dict], width: float):
    names = [f"{row['variant']} · batch {row['batch']}, {row['context']} of {row['max_context']}" for row in rows]
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
            if not row["classes"]:
                axes.barh(middle, row["us"] / 1e3, 0.17, fill=False, edgecolor=draw.MUTED, label="total")
        axes.set_xlabel("ms of a step")
        handles, labels = axes.get_legend_handles_labels()
        seen = dict(zip(labels, handles))
        fig.legend(seen.values(), seen, loc="outside lower left", ncols=3 if width < 5 else 7, frameon=False)
    return fig


def told(points: list[dict]) -> Block:
    """The story's numbers: what was measured of each and where it is so, and which cannot be true together."""
    rows = [
        [row["claim"], _range(row["told"]), _range(row["measured"]), row["status"], _where(row["where"])]
        for row in story(whole(points))
    ]
    columns = ["The story tells", "Told", "Measured, least to most", "Status", "Where it is so"]
    beside = table(columns, rows, "Beside what was measured here (within a tenth: reproduced)")
    claims = [[one["claims"], one["status"], one["text"]] for one in amdahl.verdicts()]
    return beside + table(["Numbers of one step", "Together", "Why"], claims, "By Amdahl's law, whatever the machine")


def _range(pair: tuple[float, float] | None) -> str | None:
    if pair is None:
        return None
    low, high = (f"{value:.3g}" for value in pair)
    return low if low == high else f"{low} to {high}"


def _where(places: list[tuple]) -> str:
    return "; ".join(f"{rung} at batch {batch}, {context} of {most}" for rung, batch, context, most in places)


def capacity(context: int = 8192) -> Block:
    """Tokens of context that fit beside the weights, computed from formats and sizes, next to the story's number."""
    rows = [
        [
            row["gpu"], row["gpus"], f"{row['fraction']:g}", row["cache"], row["window"], row["attention"],
            f"{row['bytes_per_token']:,.0f}", f"{row['tokens'] / 1e6:.2f}",
            f"{row['over_story']:.2f}" if row["over_story"] else None,
        ]
        for row in kv_capacity.table(context)
    ]  # fmt: skip
    columns = ["GPU", "GPUs", "Memory fraction", "Cache and keys", "Window rows", "Attention", "Bytes a token"]
    columns += ["Million tokens", "Over the story's"]
    kinds = [
        [row["layer"], row["layers"], f"{row['bytes_per_token']:.2f}", f"{row['request_bytes'] / 2**20:.2f}",
         f"{row['share']:.1%}"]
        for row in kv_capacity.by_layer(kv_capacity.Pools(), context)
    ]  # fmt: skip
    said = paragraph(
        f"Computed, not measured, for requests of {context:,} tokens; the story tells "
        f"{kv_capacity.SEED_TOKENS / 1e6:.2f} million on {kv_capacity.SEED_GPUS} GPUs and not how. "
        f"Assumed: {kv_capacity.ASSUMED}."
    )
    each = ["Layer", "Layers", "Bytes a token in one", "MiB a request in all", "Share"]
    whole_table = details(f"All {len(rows)} rows", table(columns, rows))
    return heading("KV capacity") + said + table(each, kinds, "fp8, window evicted") + whole_table
