"""The run in a few lines: what the report's card, the terminal and the last notebook all say."""

from ..measure.rows import build_rows_of, sweep_points, why
from ..records import Record
from . import measured, traced, words
from .run_data import RunData


def headline(data: RunData) -> str:
    """The verdict in a handful of words."""
    if data.purpose:
        return _measured(data)
    owner = data.verdict["owner"]
    if not data.decided and data.unusable:
        return "Not decided on this machine"
    return words.OWNERS[owner]


def opening(data: RunData) -> list[str]:
    """What the report opens with, one sentence an item. On a machine without a GPU: why, how much, what was done."""
    lines = [f"{headline(data)}."]
    if data.purpose:
        return [*lines, *unasked(data)]
    if not data.decided:
        lines += [why_undecided(data), skipped(data)]
        lines += [f"Done here: {line}" for line in done(data.records)]
        lines += [f"Seen in the trace: {line}" for line in suspected(data.records)]
    return lines


def _measured(data: RunData) -> str:
    """`Throughput only: 55 of 57 points measured on an NVIDIA H200`, `Builds only: 47 of 48 fit`.

    Counted in the records; what a stopped run had not begun has none, so it is not said of how many.
    """
    only, before = f"{data.purpose.capitalize()} only", " before it was stopped" if data.stopped else ""
    if "throughput" not in data.purpose:
        rows = build_rows_of(data.records)
        fits = sum(row.get("fits") is True for row in rows)
        return f"{only}: {fits} of {len(rows)} fit{before}" if rows else f"{only}, and no kernel was compiled"
    points = sweep_points(data.records)
    number = sum(bool(p["us"]) for p in points)
    where = f" on {words.a(data.gpu)}" if data.gpu else ""
    if not number:
        return f"{only}, and no point was measured{where}"
    counted = words.counted(number, "point") if number == len(points) else f"{number} of {len(points)} points"
    return f"{only}: {counted} measured{where}{before}"


def unasked(data: RunData) -> list[str]:
    """Of a run that only measures: that no verdict was asked for, what was found, and what is missing and why."""
    checked = [r for r in data.records if r.kind in ("build", "interpret")]
    if data.notebooks:
        made = f"of the notebooks it ran {words.listed(data.notebooks)} alone"
    else:
        made = f"it was made by capturebook {words.listed(data.commands)}"
    lines = [
        f"No question of capture was put to this run, so no verdict was asked for: {made}.",
        *done(checked),
        measured.found(sweep_points(data.records)),
        *measured.jobs(data.records),
    ]
    if data.stopped:
        lines.append(stopped(data))
    else:
        lines += [f"{r.notebook} ended with {r.status.replace('_', ' ')}: {r.reason}." for r in _broken(data)]
    if data.skipped:
        why = data.unusable or "; ".join(dict.fromkeys(r.reason for r in data.skipped))
        lines.append(f"{skipped(data)[:-1]}: {why}.")
    return [line for line in lines if line]


def _broken(data: RunData) -> list[Record]:
    """Notebooks that failed or did not end: what else they would have measured is not there."""
    return [r for r in data.records if r.kind == "notebook" and r.status not in ("pass", "skipped")]


def stopped(data: RunData) -> str:
    return f"The run was stopped by {data.stopped}: what it had not begun is in no table here."


def why_undecided(data: RunData) -> str:
    """What this machine lacks; where it lacks nothing, what the verdict leaves open."""
    return f"Why: {data.unusable or '; '.join(data.verdict['open']) or 'the records do not say'}."


def skipped(data: RunData) -> str:
    return f"{len(data.skipped)} of {words.counted(len(data.probes), 'probe')} skipped or not run."


def done(records: list[Record]) -> list[str]:
    """What was run here, one sentence for each kind of probe that ran."""
    ran = {kind: [r for r in records if r.kind == kind and r.status in words.RAN] for kind in SENTENCES}
    return [said for said in (SENTENCES[kind](group) for kind, group in ran.items() if group) if said]


def suspected(records: list[Record]) -> list[str]:
    """Lines of the user's that Dynamo broke its graph at or compiled again for, and what a capture makes of them."""
    return list(dict.fromkeys(line for r in records if words.traced(r) for line in traced.found(r)))


def _builds(group: list[Record]) -> str:
    possible = max((len(r.payload.get("compilations", [])) for r in group), default=0)
    rows = build_rows_of(group)
    if not rows:
        return " ".join(f"No kernel was compiled: {why(r)}." for r in group if r.status != "pass")
    left = possible - len(rows)
    stops = dict.fromkeys(r.payload["stopped"] for r in group if r.payload.get("stopped"))
    said = [builds(rows), *([f"{words.counted(left, 'other build')} left out."] if left > 0 else [])]
    return " ".join([*said, *(f"The recorded call {stop}." for stop in stops)])


def builds(rows: list[dict]) -> str:
    """`24 kernel configurations compiled for sm_80: 23 of 24 builds fit, 2 of them with registers spilled (...).`"""
    targets = sorted({row["target"] for row in rows}, key=lambda t: (len(t), t))
    fits = sum(row.get("fits") is True for row in rows)
    kernels = len({(row["kernel"], row["config"]) for row in rows})
    where = words.listed(targets)
    said = f"{words.counted(kernels, 'kernel configuration')} compiled for {where}: {fits} of {len(rows)} builds fit"
    spilling = [row for row in rows if row.get("fits") and row.get("spills")]
    if not spilling:
        return f"{said}."
    most = max(spilling, key=lambda row: row["spills"])
    named = " ".join(filter(None, [most["kernel"], most["config"]]))
    most = f"{named} on {most['target']}, {most['spills']} bytes"
    return f"{said}, {len(spilling)} of them with registers spilled (most: {most})."


def _interpreted(group: list[Record]) -> str:
    right = sum(r.status == "pass" for r in group)
    return f"{right} of {words.counted(len(group), 'kernel')} right under Triton's interpreter, against float64."


def _steps(group: list[Record]) -> str:
    captured = sum(r.arm is not None and r.arm.capture != "none" for r in group)
    compiled = sum(r.arm is not None and r.arm.compile != "none" for r in group)
    return f"{words.counted(len(group), 'step')} run, {captured} captured, {compiled} compiled: {words.tally(group)}."


def _compiled(group: list[Record]) -> str:
    """Steps that Inductor compiled and ran on the CPU, and those that Dynamo traced and nothing ran."""
    breaks = sum(r.effective.get("graph_breaks", 0) for r in group)
    traces = [r for r in group if words.traced(r)]
    ran = [r for r in group if r not in traces]
    said = []
    if ran:
        right = sum(r.status == "pass" for r in ran)
        which = "" if right == len(ran) else f"{right} of "
        said.append(f"{which}{words.counted(len(ran), 'step')} compiled by Inductor for the CPU ({words.tally(ran)})")
    if traces:
        said.append(f"{words.counted(len(traces), 'step')} traced by Dynamo as for a GPU ({words.tally(traces)})")
    ends = "; ".join(traced.failure(r) for r in traces if r.status != "pass")
    return f"{', '.join(said)}, {words.counted(breaks, 'graph break')} counted{': ' + ends if ends else ''}."


def _sweep(group: list[Record]) -> str:
    points = sweep_points(group)
    return " ".join(filter(None, [measured.timed(points), measured.found(points), *measured.jobs(group)]))


SENTENCES = {"build": _builds, "interpret": _interpreted, "trace": _compiled, "step": _steps, "sweep": _sweep}
