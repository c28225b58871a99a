"""What the arms show, in sentences: what the failure needed, what cured nothing, what cured it, who was right."""

from collections import defaultdict

from ..records import Arm, Record
from . import evidence as ev
from .hypotheses import Hypothesis
from .scores import as_hypothesis, neither_right, score, shown
from .scores import short as _short
from .verdict import Verdict


def explain(verdict: Verdict, hypothesis: Hypothesis | dict, records: list[Record]) -> list[str]:
    """The verdict, then the sentences that the arms support; none that rests on an arm that did not run.

    `records` are those of one run.
    """
    story = as_hypothesis(hypothesis)
    asked = Arm(**verdict.question["arm"])
    said = [verdict.sentence]
    outcomes = _outcomes(story, records)
    own = [r for r in shown(asked, records) if r.status in ev.CONCLUSIVE]
    if own and own[0].status != "pass":
        smallest = verdict.smallest["sentence"] if verdict.smallest else ""
        said += _single_changes(asked, own[0], records, smallest, _classes(verdict))
    said += _autotune(records)
    said += _variable(records)
    said += _fixes(story, outcomes)
    return said + _rivals(story, records)


def _outcomes(story: Hypothesis, records: list[Record]) -> dict[str, list[Record]]:
    found = {name: shown(arm, records) for name, arm in story.probes()}
    return {name: [r for r in group if r.status in ev.CONCLUSIVE] for name, group in found.items()}


def _tried(records: list[Record]) -> list[Record]:
    """Conclusive watched records of the subject and its twin, one for each arm."""
    roles = ("arm", "fix", "repeat")
    found = [r for r in records if r.kind == "step" and r.role in roles and r.status in ev.CONCLUSIVE and r.arm]
    return list({r.arm.model_dump_json(): r for r in sorted(found, key=lambda r: r.to_line())}.values())


def _classes(verdict: Verdict) -> dict[str, str]:
    """By probe, the class of a failure beside the question's: two errors of one number may have two causes.

    A class of the stack is one mechanism, so an equal one is the same cause; one of the kernel's is a kind of mistake.
    """
    same = {"class": verdict.class_, "owner": verdict.owner}
    told = {}
    for hazard in verdict.hazards:
        if hazard["class"]:
            alike = all(hazard[name] == value for name, value in same.items())
            as_asked = f", the same {'cause' if verdict.owner == 'stack' else 'class'}" if alike else ""
            told.update(dict.fromkeys(hazard["records"], f" ({hazard['class']}{as_asked})"))
    return told


def _single_changes(
    asked: Arm, own: Record, records: list[Record], smallest: str, classes: dict[str, str]
) -> list[str]:
    """From the arms that differ from the question's in one factor: which of them the failure needs.

    `smallest`: the sentence of the smallest failing set, which takes the place of the first one here. `classes`: by
    probe, what is said of the class of another error.
    """
    by_part: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    have: dict[str, str] = {}
    other: list[str] = []
    for record in _tried(records):
        differences = asked.differences(record.arm)
        if len(differences) != 1 or record.role == "repeat":
            continue
        ((factor, (mine, value)),) = differences.items()
        have[factor] = _word(mine)
        if record.status == "pass":
            by_part["needed"][factor].append(_word(value))
        elif ev.outcome(record) == ev.outcome(own):
            by_part["no part"][factor].append(_word(value))
        else:
            gives = _short(record).removeprefix("fail with ")
            other.append(f"{factor}={_word(value)} gives {gives}{classes.get(record.probe, '')}")
    failure = _short(own).removeprefix("fail with ")
    said = [smallest] if smallest else []
    if not smallest and (needed := by_part["needed"]):
        told = [f"{name}={have[name]}" for name in sorted(needed)]
        how = "; ".join(f"{name}={', '.join(sorted(values))}" for name, values in sorted(needed.items()))
        said.append(f"{failure} needs {_join(told)}, all together: it is gone with any one of {how}.")
    if nothing := by_part["no part"]:
        changes = [f"{name}={value}" for name, values in sorted(nothing.items()) for value in sorted(values)]
        one = "this change" if len(changes) == 1 else "each of these changes, made alone"
        said.append(f"{failure} stays with {one}: {', '.join(changes)}.")
    if other:
        said.append(f"The error becomes another one with a single change: {', '.join(sorted(other))}.")
    return said


def _autotune(records: list[Record]) -> list[str]:
    """What captures in which a Triton autotune ran ended with."""
    tuned = [r for r in _tried(records) if not ev.compiled(r.arm) and ev.witnessed(r, "autotune")]
    codes = sorted({str(r.root.code) if r.root and r.root.code else _short(r) for r in tuned})
    if not tuned:
        return []
    never = "" if "905" in codes else ", never 905"
    return [
        f"A live autotune inside an uncompiled capture ({_count(len(tuned), 'arm')}) ended with {_join(codes)}{never}."
    ]


def _variable(records: list[Record]) -> list[str]:
    """What TORCHINDUCTOR_CUDAGRAPHS changed, outcome and trees, from pairs of arms that differ only in it."""
    name, tried, same, changed = ev.TREES_VARIABLE, _tried(records), [], []
    for record in tried:
        if name not in record.arm.env:
            continue
        without = record.arm.changed(env={k: v for k, v in record.arm.env.items() if k != name})
        for other in tried:
            if other.arm == without:
                setting = f"{name}={record.arm.env[name]} with compile={record.arm.compile}"
                trees = _trees_by(other, record)
                if ev.outcome(other) == ev.outcome(record):
                    same.append(f"{setting} ({'; '.join(filter(None, (f'{_short(record)} either way', trees)))})")
                else:
                    changed.append(f"{setting}: {_short(other)} becomes {_short(record)}{trees and f' ({trees})'}")
    said = [f"No effect on the outcome: {'; '.join(sorted(same))}."] if same else []
    return said + ([f"An effect: {'; '.join(sorted(changed))}."] if changed else [])


def _trees_by(without: Record, record: Record) -> str:
    """What was read back of cudagraph trees in two arms; nothing where one of them does not tell.

    Not by Inductor's setting `triton.cudagraphs`: that is the default, which a mode overrides for its own compile.
    """
    before, after = _trees(without), _trees(record)
    if not before or not after:
        return ""
    if before != after:
        return f"read back: cudagraph trees {before} without it, {after} with it"
    unheeded = record.arm.env[ev.TREES_VARIABLE] == "0" and after != "off"
    so = ": the variable does not switch them off" if unheeded else ""
    return f"read back: cudagraph trees {after} either way{so}"


def _trees(record: Record) -> str:
    """`recorded` if a tree recorded a graph, `on` if one was ready to, `off`; empty where that was not read back."""
    if record.counts.get("cudagraph_recording", 0) + record.counts.get("cudagraph_recording@capture", 0):
        return "recorded"
    return {True: "on", False: "off"}.get(record.effective.get("trees_manager"), "")


def _fixes(story: Hypothesis, outcomes: dict[str, list[Record]]) -> list[str]:
    """Each fix that the hypothesis lists, by whether its arms pass."""
    cured, failed, lost = [], [], []
    for fix in story.fixes:
        found = [r for name in fix.arms for r in outcomes[name]]
        if not found:
            continue
        (cured if all(r.status == "pass" for r in found) else failed).append(fix.says)
        if any(r.arm.overlap and r.graph.get("parallel") is False for r in found if r.status == "pass"):
            lost.append(fix.says)
    said = [f"What cures it: {'; '.join(cured)}."] if cured else []
    said += [f"What does not cure it: {'; '.join(failed)}."] if failed else []
    return said + (
        [f"What passes at the cost of the overlap, in a captured graph that is one chain: {'; '.join(lost)}."]
        if lost
        else []
    )


def _rivals(story: Hypothesis, records: list[Record]) -> list[str]:
    scores = score(story, records)
    said = [
        f"Rival {r.id}: of {r.total} predictions {r.held} held, {r.contradicted} were contradicted, "
        f"{r.not_tested} were not tested."
        for r in scores
    ]
    neither = neither_right(scores)
    if neither and len(scores) > 1:
        said.append(f"Neither rival was right in {_count(len(neither), 'arm')}: {', '.join(neither)}.")
    return said


def _word(value) -> str:
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in sorted(value.items())) or "unset"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
