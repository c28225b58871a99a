"""The run in a few lines: what the report's card, the terminal and the last notebook all say."""

from collections import Counter

from ..records import Record
from . import words
from .run_data import RunData


def headline(data: RunData) -> str:
    """The verdict in a handful of words."""
    owner = data.verdict["owner"]
    if not data.decided and not data.gpu:
        return "Not decided on this machine"
    return words.OWNERS[owner]


def opening(data: RunData) -> list[str]:
    """What the report opens with, one sentence an item. On a machine without a GPU: why, how much, what was done."""
    lines = [f"{headline(data)}."]
    if not data.decided:
        lines += [why_undecided(data), skipped(data)]
        lines += [f"Done here: {line}" for line in done(data.records)]
    return lines


def why_undecided(data: RunData) -> str:
    """The reason most probes give for not having run; without one, what the verdict leaves open."""
    reasons = Counter(r.reason for r in data.skipped if r.kind in ("step", "sweep", "floor"))
    if reasons and not data.gpu:
        return f"Why: {reasons.most_common(1)[0][0]}."
    return f"Why: {'; '.join(map(words.spoken, data.verdict['open'])) or 'the records do not say'}."


def skipped(data: RunData) -> str:
    return f"{len(data.skipped)} of {len(data.probes)} probes skipped or not run."


def done(records: list[Record]) -> list[str]:
    """What was run here, one sentence for each kind of probe that ran."""
    ran = {kind: [r for r in records if r.kind == kind and r.status in words.RAN] for kind in SENTENCES}
    return [SENTENCES[kind](group) for kind, group in ran.items() if group]


def _builds(group: list[Record]) -> str:
    targets = sorted({str(r.payload.get("target")) for r in group}, key=lambda t: (len(t), t))
    fits = sum(r.payload.get("fits") is True for r in group)
    kernels = len({(r.payload.get("kernel"), str(r.payload.get("config"))) for r in group})
    where = words.listed(targets)
    return f"{words.counted(kernels, 'kernel configuration')} compiled for {where}: {fits} of {len(group)} builds fit."


def _interpreted(group: list[Record]) -> str:
    right = sum(r.status == "pass" for r in group)
    return f"{right} of {words.counted(len(group), 'kernel')} right under Triton's interpreter, against float64."


def _steps(group: list[Record]) -> str:
    captured = [r for r in group if r.arm is not None and r.arm.capture != "none"]
    compiled = [r for r in group if r.arm is not None and r.arm.compile != "none"]
    breaks = sum(r.effective.get("graph_breaks", 0) for r in compiled)
    return (
        f"{words.counted(len(group), 'step')} run ({words.tally(group)}): {len(captured)} captured, "
        f"{len(compiled)} compiled, {words.counted(breaks, 'graph break')} counted."
    )


def _sweep(group: list[Record]) -> str:
    return f"{words.counted(sum(r.status == 'pass' for r in group), 'sweep point')} timed."


SENTENCES = {"build": _builds, "interpret": _interpreted, "step": _steps, "sweep": _sweep}
