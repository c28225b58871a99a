"""The fix of a decided verdict: the class's recipe, whether it was run and cured the arm, and what it gains."""

import statistics

from ..records import Arm, Record
from . import evidence as ev
from .costs import COST
from .decision import Decision
from .recipes import RECIPES


def add_fix(verdict, decision: Decision) -> None:
    """Fill fix, fixed, gain and gain_reason of a verdict that names a class."""
    recipe = RECIPES.get(verdict.class_)
    if recipe is None:
        return
    verdict.fix = recipe.says
    tried = fix_records(decision)
    passed = [r for r in tried if r.status == "pass"]
    if not fix_arms(decision) and not passed:
        verdict.fixed = "needs a code change"
    elif not tried:
        verdict.fixed = "not tried"
    else:
        verdict.fixed = "fixed" if passed else "not fixed"
    if passed:
        best = passed[0]
        shown = best.arm.label(decision.arm) if best.arm != decision.arm else "the scrubbed environment"
        verdict.fix = f"{recipe.says} Run here: {shown} passes."
        overlap = [c for c in best.caveats if c.startswith("overlap lost")]
        if best.arm.overlap and best.graph.get("parallel"):
            overlap = ["overlap kept: the captured graph has branches side by side"]
        verdict.caveats += [f"{COST}{c}" for c in overlap]
        verdict.gain, verdict.gain_reason = gain(decision, best)
    else:
        verdict.gain_reason = "no fix was run that passes"
        if tried:
            arms = dict.fromkeys(r.arm.label(decision.arm) for r in tried if r.arm != decision.arm)
            verdict.fix += f" Run here, and no cure: {'; '.join(arms) or 'the scrubbed environment'}."


def fix_arms(decision: Decision) -> list[Arm]:
    """The recipe's changes of the arm decided on, in order; for B7 its scrubbed arm."""
    recipe = RECIPES.get(decision.finding.cls)
    return recipe.arms(decision.arm, decision.evidence.env) if recipe else []


def fix_records(decision: Decision) -> list[Record]:
    """Conclusive records of the fix's arms: passing ones first, among them those that keep the overlap."""
    found = []
    for number, arm in enumerate(fix_arms(decision)):
        found += [(r, number) for r in decision.evidence.companion(arm)]
    if decision.finding.cls == "B7":
        found += [(r, 0) for r in decision.finding.records if r.role == "scrubbed"]

    def rank(pair: tuple[Record, int]) -> tuple:
        record, number = pair
        return (record.status != "pass", _lost_overlap(decision.arm, record), number, record.probe)

    return [record for record, _ in sorted(found, key=rank)]


def _lost_overlap(asked: Arm, record: Record) -> bool:
    """The arm asked about runs work side by side, and this record's graph does not, or the arm gave it up."""
    return bool(asked.overlap) and (not record.arm.overlap or record.graph.get("parallel") is False)


def baseline(decision: Decision, fixed: Arm) -> Arm | None:
    """The nearest passing arm that is no fix: what the user could run without one.

    Nearest: the same capture and variant, then uncompiled if the arm was compiled, then the fewest factors changed. It
    sets the same variables as the fixed arm, since both are timed in one process.
    """
    fixes = fix_arms(decision)
    near = [
        r.arm for r in decision.evidence.arms()
        if r.status == "pass" and r.arm.variant == decision.arm.variant and r.arm.capture == decision.arm.capture
        and r.arm.env == fixed.env and not any(ev.same_arm(fix, r.arm) for fix in fixes)
    ]  # fmt: skip

    def distance(arm: Arm) -> tuple:
        return (arm.compile != "none" and ev.compiled(decision.arm), len(decision.arm.differences(arm)), arm.label())

    return min(near, key=distance, default=None)


def timed(decision: Decision, fixed: Arm, other: Arm) -> Record | None:
    """The record of both arms timed in turns; a passing one if there is one."""
    found = [r for r in decision.evidence.gains if r.arm == fixed and r.payload.get("baseline") == other.model_dump()]
    return min(found, key=lambda r: (r.status != "pass", r.started, r.probe), default=None)


def gain(decision: Decision, fixed: Record) -> tuple[dict | None, str]:
    """{"ratio", "ratio_iqr", "fixed", "fixed_us", "fixed_iqr_us", "baseline", ..., "record"}, or None and why.

    ratio is the baseline's median time divided by the fixed arm's: above 1 the fixed arm is faster. ratio_iqr holds the
    quartiles of the same ratio taken round by round, as the two took turns.
    """
    if fixed.role == "scrubbed":
        return None, "both arms are timed in one process, which cannot both have the setting and not"
    other = baseline(decision, fixed.arm)
    if other is None:
        return None, "no other arm passes with this capture, so there is nothing to compare the fixed arm with"
    record = timed(decision, fixed.arm, other)
    beside = f"{fixed.arm.label(decision.arm)} beside {other.label(decision.arm)}"
    if record is None:
        return None, f"no times were recorded for {beside}"
    if record.status != "pass":
        why = record.reason or (record.root.text.partition("\n")[0] if record.root else "")
        return None, f"{beside} was not timed: {record.status.replace('_', ' ')}: {why}"
    mine, theirs = record.samples["fixed"], record.samples["baseline"]
    low, _, high = statistics.quantiles([b / a for a, b in zip(mine, theirs, strict=True)], n=4)
    return {
        "ratio": statistics.median(theirs) / statistics.median(mine),
        "ratio_iqr": [low, high],
        "fixed": fixed.arm.label(decision.arm),
        "fixed_us": statistics.median(mine),
        "fixed_iqr_us": _iqr(mine),
        "baseline": other.label(decision.arm),
        "baseline_us": statistics.median(theirs),
        "baseline_iqr_us": _iqr(theirs),
        "record": record.probe,
    }, ""


def _iqr(times: list[float]) -> float:
    low, _, high = statistics.quantiles(times, n=4)
    return high - low
