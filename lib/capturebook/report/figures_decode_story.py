"""The decode step's story: its numbers beside what was measured and beside each other, and the KV capacity it tells."""

from ..measure import amdahl, kv_capacity
from ..measure.decode_model import story
from . import words
from .block import Block, details, heading, paragraph, table

SEED = f"{kv_capacity.SEED_TOKENS / 1e6:.2f} million"


def told(rows: list[dict], gpu: str, rank: str) -> Block:
    """The story's numbers: what was measured of each and where it is so, and which cannot be true together.

    rows: of `decode_model.whole`. gpu: the name of what they were measured on, of which alone a status speaks; rank:
    what part of the model they were measured of.
    """
    on = f" on {words.a(gpu)}" if gpu else ""
    verdicts = amdahl.verdicts()
    shown = []
    for row in story(rows):
        against = [one["claims"] for one in verdicts if row["key"] in one["of"] and one["status"] != "possible"]
        shown.append(
            [
                row["claim"], _range(row["told"]), _measured(row), f"{row['status']}{on}", _where(row["where"]),
                f"{amdahl.INCONSISTENT}: {'; '.join(against)}" if against else "possible",
            ]
        )  # fmt: skip
    columns = [
        "The story tells",
        "Told",
        "Measured, least to most",
        "Status",
        "Where it is so",
        "Among its own numbers",
    ]
    beside = table(columns, shown, f"Beside what was measured{on} (within a tenth: reproduced), {rank}", stack=True)
    claims = [[one["claims"], one["status"], one["text"]] for one in verdicts]
    return beside + table(["Numbers of one step", "Together", "Why"], claims, "By Amdahl's law, whatever the machine")


def _range(pair: tuple[float, float] | None) -> str | None:
    if pair is None:
        return None
    low, high = (f"{value:.3g}" for value in pair)
    return low if low == high else f"{low} to {high}"


def _measured(row: dict) -> str | None:
    """Least and most, and at which batch and context of which maximum each was measured, after which rung."""
    if not row["measured"]:
        return None
    ends = [f"{value:.3g} ({_where([place])})" for value, place in zip(row["measured"], row["ends"])]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


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
        f"{SEED} on {kv_capacity.SEED_GPUS} GPUs and not how. "
        f"Assumed: {kv_capacity.ASSUMED}."
    )
    most = max(float(row[2]) for row in rows)
    beside = [[*row[:1], *row[3:]] for row in rows if row[1] == kv_capacity.SEED_GPUS and float(row[2]) == most]
    at = f"{kv_capacity.SEED_GPUS} GPUs, memory fraction {most:g}, beside the story's {SEED}"
    eight = table([*columns[:1], *columns[3:]], beside, at)
    each = ["Layer", "Layers", "Bytes a token in one", "MiB a request in all", "Share"]
    whole_table = details(f"All {len(rows)} rows", table(columns, rows))
    return heading("KV capacity") + said + eight + table(each, kinds, "fp8, window evicted") + whole_table
