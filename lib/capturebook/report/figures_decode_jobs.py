"""The decode step's batch buckets and torch.compile on it: what the jobs beside the sweep recorded, in two tables."""

from collections import Counter

from ..measure.decode_compile import COMPILED, PLAIN, UNCOMPILED
from ..measure.rows import why
from ..records import Record
from . import words
from .block import Block, heading, paragraph, table

MIB = 2**20


def jobs(records: list[Record]) -> Block | None:
    """Both tables, of whichever was asked for; None where neither was."""
    found = [block for block in (buckets(records), compiled(records)) if block]
    return sum(found[1:], found[0]) if found else None


def buckets(records: list[Record]) -> Block | None:
    """One row for each batch size: its graph's memory by pool and order, its time, its error; None without such a job.

    What could not be measured has its reason instead.
    """
    found = of_part(records, "buckets")
    if not found:
        return None
    record = found[-1]
    title = heading("A graph for each batch")
    if not record.payload.get("buckets"):
        return title + paragraph(f"Not measured: {words.short(record)}. {why(record)}")
    rows = [
        [
            one["size"], f"{one['median_us']:.1f}", f"{one['capture_s']:.2f}", *map(_mib, one["memory"].values()),
            f"{one['error']:.2g}",
        ]
        for one in record.payload["buckets"]
    ]  # fmt: skip
    ways = list(record.payload["buckets"][0]["memory"])
    sums = [_mib([sum(of) for of in zip(*(b["memory"][way] for b in record.payload["buckets"]))]) for way in ways]
    rows.append(["all", None, None, *sums, None])
    columns = ["Batch", "µs a step", "Capture s", *(f"{way}, MiB" for way in _ways(ways)), "Worst error"]
    return title + paragraph(said_of_buckets(record)) + table(columns, rows, "Memory: torch's allocator / the driver")


def _ways(ways: list[str]) -> list[str]:
    return [way if way == "a pool each" else f"one pool, {way}" for way in ways]


def _mib(pair: list[int]) -> str:
    allocator, driver = pair
    return f"{allocator / MIB:.1f} / {driver / MIB:.1f}"


def said_of_buckets(record: Record) -> str:
    """What the buckets' table comes to, in a few sentences."""
    p = record.payload
    totals = {way: sum(one["memory"][way][0] for one in p["buckets"]) / MIB for way in p["buckets"][0]["memory"]}
    error = max(check.error or 0.0 for check in record.checks)
    looked = {check.call for check in record.checks if check.output == "positions"}
    judged = {check.call for check in record.checks if check.output != "positions"}
    allowed = max(check.tolerance or 0.0 for check in record.checks)
    sizes = words.listed([str(one["size"]) for one in p["buckets"]])
    layers = words.counted(len(p["layers"]), "layer")
    return (
        f"Graphs of {layers} ({', '.join(p['layers'])}; {p['rung']}) for {sizes} requests in one pool, largest first, "
        f"take {totals['largest first']:.0f} MiB of torch's allocator; smallest first {totals['smallest first']:.0f}, "
        f"with a pool each {totals['a pool each']:.0f}. A batch is padded to the next size. They were replayed "
        f"{p['replays']} times in turn while requests grew. In the {len(judged)} replays that were held to float64 no "
        f"layer was off by more than {error:.2g} (allowed: {allowed:g}); in the {len(looked)} after which it was "
        "looked for, idle requests stayed where they were."
    )


def compiled(records: list[Record]) -> Block | None:
    """One row for each compiled variant of the step, cold and then timed; None without such a job."""
    groups = _variants(records)
    if not groups:
        return None
    title = heading("torch.compile on the step")
    columns = ["Step", "Layer", "Ended", "Breaks", "Recompiled", "Compile s", "From its cache s", "Another batch s"]
    columns += ["Nodes", "Branches", "µs", f"Over {PLAIN!r}", f"Over {UNCOMPILED[0]!r}", "Over the fastest", "Why not"]
    rows = [_compiled_row(*key, group.get(False), group.get(True)) for key, group in groups.items()]
    caption = (
        f"One layer at {words.point(of_part(records, 'compile')[-1].subject.options)}; cold compilations ran side by "
        "side with others. Times are of a graph of this one layer. Over: the same layer captured as it is, in turns in "
        "the same process; the fastest: of those that are not compiled there"
    )
    return title + paragraph(" ".join(said_of_compile(records))) + table(columns, rows, caption, stack=True)


def _compiled_row(layer: str, name: str, cold: Record | None, timed: Record | None) -> list:
    ended = [words.badge(r.status, words.short(r)) for r in (cold, timed) if r]
    c, t = (r.payload if r else {} for r in (cold, timed))
    graph = t.get("graph") or c.get("graph") or {}
    gains = _gains(name, t)
    reasons = dict.fromkeys(why(r) for r in (cold, timed) if r and r.status != "pass")
    grown, second = c.get("grown"), c.get("second")
    return [
        name, layer, ended[-1] if ended else None, c.get("breaks"),
        f"{grown['recompiled']} in {grown['tokens']} tokens" if grown else None, _seconds(c), _seconds(t),
        f"{second['first_call_s']:.1f} ({second['batch']})" if second else None,
        sum(graph["nodes"].values()) if graph else None,
        {True: "yes", False: "no"}.get(graph.get("parallel")),
        f"{t['us'][name]['median_us']:.1f}" if gains else None,
        *([f"{gains[PLAIN]:.2f}x", f"{gains[UNCOMPILED[0]]:.2f}x", _least(gains)] if gains else [None] * 3),
        "; ".join(text[:300] for text in reasons),
    ]  # fmt: skip


def _seconds(payload: dict) -> str | None:
    return f"{payload['first_call_s']:.1f}" if "first_call_s" in payload else None


def _gains(name: str, payload: dict) -> dict[str, float]:
    """Over each variant that is not compiled, in one process with it; {} without times."""
    us = payload.get("us", {})
    uncompiled = [other for other in (PLAIN, *UNCOMPILED) if other in us]
    return {other: us[other]["median_us"] / us[name]["median_us"] for other in uncompiled}


def _least(gains: dict[str, float]) -> str:
    fastest = min(gains, key=gains.get)
    return f"{gains[fastest]:.2f}x ({fastest!r})"


def said_of_compile(records: list[Record]) -> list[str]:
    """What torch.compile did for each variant, a sentence each, as far as it was recorded: first of which layer."""
    return [
        said
        for (layer, name), of in _variants(records).items()
        if (said := _said(layer, name, of.get(False), of.get(True)))
    ]


def _variants(records: list[Record]) -> dict[tuple[str, str], dict[bool, Record]]:
    """{(layer, compiled variant): {whether it was timed: record}}, in the order in which they are declared, whatever
    that of the records; the layer of which all variants were asked for first."""
    groups: dict[tuple[str, str], dict[bool, Record]] = {}
    for record in of_part(records, "compile"):
        asked = record.subject.options
        groups.setdefault((asked["layer"], asked["compiled"]), {})[asked["timed"]] = record
    of = Counter(layer for layer, _ in groups)
    return dict(sorted(groups.items(), key=lambda item: (-of[item[0][0]], item[0][0], COMPILED.index(item[0][1]))))


def _said(layer: str, name: str, cold: Record | None, timed: Record | None) -> str:
    c, t = (r.payload if r else {} for r in (cold, timed))
    place = words.point((cold or timed).subject.options)
    what = f"One {layer} layer at {place}, {name}"
    bad = next((r for r in (cold, timed) if r and r.status not in ("pass", "skipped")), None)
    if bad:
        return f"{what}: {words.short(bad)} in {bad.stage}."
    if not c and not t:
        return ""
    told = []
    if "grown" in c:
        told.append(
            f"{words.counted(c['breaks'], 'graph break')}, {words.counted(c['grown']['recompiled'], 'recompile')} "
            "while requests grow; captured it is right"
        )
    if "second" in c:
        told.append(f"another batch is compiled anew, in {c['second']['first_call_s']:.0f} s")
    if gains := _gains(name, t):
        fastest = min(gains, key=gains.get)
        others = {PLAIN: "", UNCOMPILED[0]: "", fastest: ", the fastest of those not compiled"}
        over = [f"{gains[other]:.2f} times as fast as {other!r} captured{more}" for other, more in others.items()]
        told.append(words.listed(over))
    if "overlap" in name and (graph := t.get("graph") or c.get("graph")):
        told.append("its side streams are branches of the graph" if graph["parallel"] else "its side streams are lost")
    return f"{what}: {'; '.join(told)}." if told else ""


def of_part(records: list[Record], part: str) -> list[Record]:
    """The records of a job beside the sweep: "buckets", "compile" or "warm"."""
    return [r for r in records if r.kind == "sweep" and r.subject and r.subject.options.get("part") == part]
