"""The decode step's story: its numbers beside what was measured and beside each other, and the KV capacity it tells."""

from collections.abc import Callable

from markupsafe import Markup

from ..measure import amdahl, kv_capacity
from ..measure.decode_story import story
from ..measure.decode_variants import RUNGS
from . import words
from .block import Block, details, heading, paragraph, table
from .decode_rank import ALL, LEFT_OUT

SEED = f"{kv_capacity.SEED_TOKENS / 1e6:.2f} million"


def told(rows: list[dict], gpu: str, rank: str) -> Block:
    """The story's numbers: what was measured of each and where it is so, and which cannot be true together.

    rows: of `decode_model.known`. gpu: the name of what they were measured on, of which alone a status speaks; rank:
    what part of the model they were measured of.
    """
    on = f" on {_a(gpu.removeprefix('NVIDIA '))}" if gpu else ""
    verdicts = amdahl.verdicts()
    shown, values = [], []
    for row in story(rows):
        against = [one["claims"] for one in verdicts if row["key"] in one["of"] and one["status"] != "possible"]
        number = _share if row["key"] in SHARES else _gain
        told_of = " to ".join(dict.fromkeys(map(number, row["told"])))
        shown.append(
            [
                row["claim"], told_of, _measured(row, number),
                row["status"] + (on if row["status"] == "not reproduced" else ""), _lines(_conditions(row)),
                _lines([f"{amdahl.INCONSISTENT}: {'; '.join(against)}" if against else "possible"]),
            ]
        )  # fmt: skip
        values += [[row["claim"], *_cells(place), number(value)] for place, value in row["values"].items()]
    columns = [
        "The story tells",
        "Told",
        "Measured, least to most",
        "Status",
        "Where it is so",
        "Amdahl's law",
    ]
    fewer = {row["layers"] for row in rows if row["layers"] != ALL}
    note = f"; † {min(fewer)} of {ALL} layers, {LEFT_OUT}" if fewer else ""
    of = f"what was measured{on} (within a tenth: reproduced), {rank}{note}"
    found = table(columns, shown, f"Beside {of}", stack=True)
    if values:
        each = ["The story tells", "Rung", "Batch", "Context", "Glue", "Measured"]
        found += details(
            f"All {words.counted(len(values), 'value')}",
            table(each, values, f"{of[0].upper()}{of[1:]}; the rung of a gain is the one before it"),
        )
    claims = [[one["claims"], one["status"], one["text"]] for one in verdicts]
    by = "By Amdahl's law, whatever the machine; two numbers of different steps may both be true"
    return found + table(["Numbers of one step", "Together", "Why"], claims, by, stack=True)


SHARES = ("before", "after", "glue")
"""Keys of the story's numbers that are shares; the others are gains."""


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


def _gain(value: float) -> str:
    return f"{value:.3g}x"


def _a(gpu: str) -> str:
    """With its article, as it is spoken: `an H200`, `a B200`, `a Tesla T4`."""
    spelled = not gpu[1:2].islower()
    return f"{'an' if gpu.startswith(tuple('AEFHILMNORSX' if spelled else 'AEIO')) else 'a'} {gpu}"


def _measured(row: dict, number: Callable[[float], str]) -> Markup | None:
    """Least and most, and at which batch and context of which maximum each was measured, after which rung."""
    if not row["measured"]:
        return None
    ends = [f"{number(value)} ({_where(place)})" for value, place in zip(row["measured"], row["ends"])]
    return Markup(" <br>to ").join(dict.fromkeys(ends))


def _lines(parts: list[str]) -> Markup:
    return Markup("; <br>").join(parts)


def _conditions(row: dict) -> list[str]:
    """Where a number is so, by batch, context, maximum context and glue; what is not at a measured point says so."""
    found = _places(row["where"])
    if row["batches"] and all(row["batches"]):
        so, not_so = (words.listed([str(batch) for batch in of]) for of in row["batches"])
        found = [f"not over all concurrencies, as it is told: at {so}, not at {not_so}", *found]
    for place, less, high, more, at in row["between"]:
        found.append(
            f"interpolated, {_of(place)}: between the measured maximum contexts {place[3]} ({less:.3g}x) and {high} "
            f"({more:.3g}x), by a straight line at about {round(at, -4):,.0f}"
        )
    for place, value in row["beyond"]:
        found.append(f"{_of(place)}: only above maximum context {place[3]} ({value:.3g}x there), not measured")
    found += [f"after another rung: {place}" for place in _places(row["elsewhere"])]
    return found or (["at no measured point"] if row["measured"] else [])


def _places(places: list[tuple]) -> list[str]:
    return [f"{_where(place)}, {RUNGS[place[0]].glue} glue" for place in places]


def _where(place: tuple) -> str:
    rung, batch, context, _ = _cells(place)[:4]
    return f"{rung!r} at batch {batch}, {context}"


def _cells(place: tuple) -> list:
    rung, batch, context, most, layers = place
    return [rung, batch, f"{context} of {most}{'' if layers == ALL else ' †'}", RUNGS[rung].glue]


def _of(place: tuple) -> str:
    """What is the same at several maximum contexts."""
    rung, batch, context, _, layers = place
    mark = "" if layers == ALL else " †"
    return f"with {RUNGS[rung].indexer} indexer and {RUNGS[rung].glue} glue at batch {batch}, {context}{mark}"


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
        [pools.cache, pools.window, row["layer"], row["layers"], f"{row['bytes_per_token']:.2f}",
         f"{row['request_bytes'] / 2**20:.2f}", f"{row['share']:.1%}"]
        for pools in kv_capacity.kept()
        for row in kv_capacity.by_layer(pools, context)
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
    each = ["Cache and keys", "Window rows", "Layer", "Layers", "Bytes a token in one", "MiB a request in all", "Share"]
    whole_table = details(f"All {len(rows)} rows", table(columns, rows))
    return heading("KV capacity") + said + eight + table(each, kinds, "By kind of layer") + whole_table
