"""The verdict of a run: owner, class, root, fix and the records it rests on. A pure function of the run's files."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..records import Arm, Record
from . import costs
from . import evidence as ev
from .conditions import Case
from .decision import Decision
from .fixes import add_fix
from .rules import find
from .smallest import smallest


class Verdict(BaseModel):
    """verdict.json. `records` are probe ids: take one away and the verdict is open again.

    owner: none (it survives), kernel, stack, environment, not_run, undetermined. `class` is K1-K6, B1-B9 or None.
    `rule` is the row of the table that decided and `says` what it concludes; `sentence` is the whole verdict in words.
    `gain` is the fixed arm's time against the nearest passing arm's, or None with `gain_reason`. `smallest` holds the
    factors that the failure takes, all together, with a `sentence`; its `minimal` is true where that was shown of each
    factor (`unclear`: those whose arm gave no result). None as long as too few arms were tried to tell.
    """

    model_config = ConfigDict(populate_by_name=True)

    question: dict[str, Any]
    owner: str
    class_: str | None = Field(default=None, alias="class")
    status: str
    root: dict[str, Any] | None = None
    fix: str | None = None
    fixed: str | None = None
    gain: dict[str, Any] | None = None
    gain_reason: str = ""
    smallest: dict[str, Any] | None = None
    records: list[str] = []
    hazards: list[dict[str, Any]] = []
    caveats: list[str] = []
    open: list[str] = []
    rule: str = ""
    says: str = ""
    sentence: str = ""

    def to_json(self) -> dict[str, Any]:
        """As verdict.json holds it."""
        return self.model_dump(by_alias=True)

    def lines(self) -> list[str]:
        """For a terminal: the sentence, what the fix costs and gains, the smallest failing set."""
        smallest = [self.smallest["sentence"]] if self.smallest else []
        return [self.sentence, *costs.told(self.to_json()), *smallest]


def judge(info: dict, hypothesis: dict | None, records: list[Record]) -> Verdict:
    """The verdict of a run.

    `info` is run.json (nonce and question are read), `hypothesis` is hypothesis.json (its arm ids name the hazards; may
    be empty), `records` the whole of records.jsonl in any order. Records of another nonce do not count.
    """
    decision = Decision(info, records)
    finding, primary = decision.finding, decision.primary
    verdict = Verdict(
        question={**decision.question.model_dump(), "arm": decision.arm.model_dump(), "label": decision.arm.label()},
        owner=finding.owner,
        class_=finding.cls,
        status=primary.status if primary and finding.owner != "not_run" else _status(decision),
        root=_root(primary) if finding.owner != "not_run" else None,
        records=sorted({r.probe for r in finding.records}),
        open=list(finding.open),
        rule=finding.number,
        says=finding.says,
    )
    names = _names(hypothesis or {})
    verdict.hazards = _hazards(decision, names)
    verdict.caveats = _caveats(decision)
    add_fix(verdict, decision)
    searched = smallest(decision)
    verdict.smallest = searched.to_json() if searched else None
    verdict.sentence = _sentence(verdict, decision)
    return verdict


def _status(decision: Decision) -> str:
    tried = decision.evidence.of(decision.arm, ("arm",))
    return tried[0].status if tried and tried[0].status not in ev.CONCLUSIVE else "not_run"


def _root(record: Record | None) -> dict | None:
    if record is None or record.status == "pass":
        return None
    root = ev.root_of(record)
    if root is None:
        return {"code": None, "name": None, "text": record.reason}
    return {"code": root.code, "name": root.name or root.type, "text": root.text}


def _names(hypothesis: dict) -> list[tuple[str, Arm]]:
    """The hypothesis's arms by id, with the sizes that it leaves to the parameters left open."""
    base = hypothesis.get("base", {})
    return [(arm["id"], Arm(**{**base, **arm["factors"]})) for arm in hypothesis.get("arms", [])]


def _hazards(decision: Decision, names: list[tuple[str, Arm]]) -> list[dict[str, Any]]:
    """Failures in other arms, each with its class as far as the records decide it; never the verdict."""
    found: dict[str, dict[str, Any]] = {}
    for record in decision.evidence.arms():
        if record.status == "pass" or ev.same_arm(decision.arm, record.arm) or record.arm.variant != "step":
            continue
        finding = find(Case(decision.evidence, record))
        key = record.arm.model_dump_json()
        found.setdefault(
            key,
            {
                "arm": record.arm.model_dump(),
                "id": next((name for name, arm in names if ev.same_arm(arm, record.arm)), ""),
                "label": record.arm.label(decision.arm),
                "status": record.status,
                "owner": finding.owner,
                "class": finding.cls,
                "root": _root(record),
                "records": [],
                "open": list(finding.open),
            },
        )["records"].append(record.probe)
    return [found[key] for key in sorted(found, key=lambda key: (found[key]["label"], key))]


def _caveats(decision: Decision) -> list[str]:
    """What a reader must know beside the verdict: the records' own caveats, and those that follow from readings."""
    said: list[str] = []
    for record in filter(None, (decision.first, decision.primary)):
        said += record.caveats
        if record.status == "pass" and record.arm.capture != "none":
            if ev.witnessed(record, "dynamo", "recompile"):
                said.append("torch.compile compiled inside the capture, and it passed")
            if ev.cold(record.arm):
                driver = record.provenance.get("driver") or "this driver"
                said.append(f"a cold capture passed on {driver}; older drivers refuse to load modules in a capture")
        if record.effective.get("cudagraph_skips"):
            said.append("Inductor skipped its cudagraph trees")
    if any(map(ev.generic, decision.finding.records)):
        said.append("the subject has no twin: a step of torch ops, which is not the subject's, stood in")
    seen = decision.primary.root if decision.primary else None
    asked = decision.question.error
    if asked is not None and decision.primary is not None:
        if decision.primary.status == "pass":
            said.append(f"{asked} does not reproduce here: the question's arm passes")
        elif seen is None or seen.code != asked:
            got = (seen.code or seen.type) if seen else decision.primary.status
            said.append(f"{asked} does not reproduce here: the question's arm gives {got}")
    if decision.evidence.foreign:
        said.append(f"{decision.evidence.foreign} records carry another run's nonce and do not count")
    return list(dict.fromkeys(said))


def _sentence(verdict: Verdict, decision: Decision) -> str:
    """The verdict in words, for a terminal's last line and the head of a report."""
    root = verdict.root
    what = (
        f"{root['code']} {root['name']}" if root and root["code"] else (root["name"] if root and root["name"] else "")
    )
    what = what or verdict.status
    if verdict.owner == "none":
        return f"It survives: {decision.arm.label()} passes, replayed with changed inputs and compared."
    if verdict.owner in ("not_run", "undetermined"):
        head = "Not decided: the diagnostic did not run" if verdict.owner == "not_run" else "Undetermined"
        return f"{head}: {'; '.join(verdict.open) or decision.finding.says}."
    cls = f", class {verdict.class_}" if verdict.class_ else ""
    fix = {
        "fixed": f" Fix: {verdict.fix}",
        "not fixed": f" Not cured yet: {verdict.fix}",
        "not tried": f" Fix, not tried here: {verdict.fix}",
        "needs a code change": f" The fix needs a change of code: {verdict.fix}",
    }.get(verdict.fixed or "", "")
    return f"Owner {verdict.owner}{cls}: {decision.finding.says} ({what}).{fix}"
