"""The fix of a decided verdict: the class's recipe, whether it was run and cured the arm, and what it gains."""

import statistics

from ..records import Arm, Record
from . import evidence as ev
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
    if not recipe.arms(decision.arm) and not passed:
        verdict.fixed = "needs a code change"
    elif not tried:
        verdict.fixed = "not tried"
    else:
        verdict.fixed = "fixed" if passed else "not fixed"
    if passed:
        best = passed[0]
        shown = best.arm.label(decision.arm) if best.arm != decision.arm else "the scrubbed environment"
        verdict.fix = f"{recipe.says} Run here: {shown} passes."
        lost = [c for c in best.caveats if c.startswith("overlap lost")]
        verdict.caveats += [f"with the fix: {c}" for c in lost]
        verdict.gain, verdict.gain_reason = gain(decision, best)
    else:
        verdict.gain_reason = "no fix was run that passes"


def fix_arms(decision: Decision) -> list[Arm]:
    """The recipe's changes of the arm decided on, in order; for B7 its scrubbed arm."""
    recipe = RECIPES.get(decision.finding.cls)
    return recipe.arms(decision.arm) if recipe else []


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


def baseline(decision: Decision) -> Arm | None:
    """The nearest passing arm that is no fix: what the user could run without one.

    Nearest: the same capture and variant, then uncompiled if the arm was compiled, then the fewest factors changed.
    """
    fixes = fix_arms(decision)
    near = [
        r.arm for r in decision.evidence.arms()
        if r.status == "pass" and r.arm.variant == decision.arm.variant and r.arm.capture == decision.arm.capture
        and not any(ev.same_arm(fix, r.arm) for fix in fixes)
    ]  # fmt: skip

    def distance(arm: Arm) -> tuple:
        return (arm.compile != "none" and ev.compiled(decision.arm), len(decision.arm.differences(arm)), arm.label())

    return min(near, key=distance, default=None)


def timed(decision: Decision, arm: Arm) -> list[float]:
    """Times of an arm in microseconds, of all its passing records that carry some."""
    records = [r for r in decision.evidence.of(arm) if r.samples]
    return [t for r in records for t in r.samples.get("replay") or r.samples.get("call") or []]


def gain(decision: Decision, fixed: Record) -> tuple[dict | None, str]:
    """{"ratio", "fixed_us", "baseline_us", "fixed_iqr_us", "baseline_iqr_us", "baseline"}, or None and why.

    ratio is the baseline's median time divided by the fixed arm's: above 1 the fixed arm is faster.
    """
    other = baseline(decision)
    if other is None:
        return None, "no other arm passes with this capture, so there is nothing to compare the fixed arm with"
    mine, theirs = timed(decision, fixed.arm), timed(decision, other)
    for times, arm in ((mine, fixed.arm), (theirs, other)):
        if len(times) < 2:
            return None, f"no times were recorded for {arm.label(decision.arm)}"
    return {
        "ratio": statistics.median(theirs) / statistics.median(mine),
        "fixed": fixed.arm.label(decision.arm),
        "fixed_us": statistics.median(mine),
        "fixed_iqr_us": _iqr(mine),
        "baseline": other.label(decision.arm),
        "baseline_us": statistics.median(theirs),
        "baseline_iqr_us": _iqr(theirs),
    }, ""


def _iqr(times: list[float]) -> float:
    low, _, high = statistics.quantiles(times, n=4)
    return high - low
