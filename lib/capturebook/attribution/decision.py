"""How a run's question is decided: controls first, then the question's arm, its repeats, and the table of rules."""

from ..records import Arm, Question, Record
from . import controls as control_rules
from . import evidence as ev
from .conditions import Case, gone_without_settings
from .evidence import Evidence, Need
from .rules import Finding, find


class Decision:
    """How a verdict came about: the arm decided on, the finding, and what is still needed. `plan` reads it."""

    def __init__(self, info: dict, records: list[Record]):
        self.question = Question(**info["question"])
        self.evidence = Evidence(info["nonce"], records, info.get("parameters", {}).get("env"))
        self.controls = control_rules.examine(self.evidence)
        self.arm = self.question.arm
        self.primary = _primary(self.evidence, self.arm)
        self.first: Record | None = None
        if self.question.follow_compiled and self.primary and self.primary.status == "pass" and not self.conflict():
            self.first = self.primary
            self.arm = self.question.arm.changed(compile="default")
            self.primary = _primary(self.evidence, self.arm)
        self.finding = self._decide()

    def conflict(self) -> str:
        """Why the records of the arm decided on do not agree, or nothing."""
        found = [r for r in self.evidence.of(self.arm, ("arm", "repeat", "unwatched")) if r.status in ev.CONCLUSIVE]
        shown = {ev.outcome(r) for r in found}
        # A capture that another thread breaks now and then is one finding, not two: the thread test tells.
        if self.primary is not None and ev.lone_901(self.primary) and self.primary.effective.get("threads"):
            shown -= {("pass",)}
        if len(shown) <= 1:
            return ""
        statuses = {outcome[0] for outcome in shown}
        said = " / ".join(sorted(" with ".join(map(str, outcome)) for outcome in shown))
        if statuses == {"fail"} and not all(ev.witnessed(r, "dynamo", "recompile") for r in found if r.watched):
            return f"two roots in the question's arm: {said}"
        return "" if statuses == {"fail"} else f"repeats of the question's arm disagree: {said}"

    def _decide(self) -> Finding:
        state, said = self.controls.state, self.controls.said
        if not self.evidence.records:
            foreign = self.evidence.foreign
            why = "no probe of a step was recorded in this run" + (
                f" ({foreign} records carry another nonce)" if foreign else ""
            )
            return _not_run(why, needs=(*self.controls.needs, *self._own_needs()))
        if state == "contradict":
            return Finding(None, "undetermined", "controls contradict", open=said)
        if state in ("missing", "misbehaved"):
            return _not_run(*said, needs=(*self.controls.needs, *self._own_needs()))
        if self.primary is None:
            return self._without_primary()
        if conflict := self.conflict():
            return Finding(None, "undetermined", conflict, open=(conflict,))
        if state == "cuda":
            return self._with_broken_controls()
        return self._confirmed(self._explain())

    def _explain(self) -> Finding:
        if self.primary.status == "pass":
            return Finding(None, "none", "it survives")
        return find(Case(self.evidence, self.primary))

    def _confirmed(self, finding: Finding) -> Finding:
        """Principle 10: the deciding arm once more with the witnesses off."""
        if finding.owner == "undetermined":
            return finding
        unwatched = [r for r in self.evidence.of(self.arm, ("unwatched",)) if r.status in ev.CONCLUSIVE]
        if not unwatched:
            need = self._unwatched_need()
            return Finding(
                None,
                "undetermined",
                "the witnesses were never off",
                needs=(need,),
                open=(need.text(),),
                number=finding.number,
            )
        return _with_records(
            finding, (self.first, self.primary, unwatched[0], *finding.records, *self.controls.records)
        )

    def _with_broken_controls(self) -> Finding:
        """A control failed with a CUDA error: rule 0. Only a scrubbed process can tell what the arm does by itself."""
        said = self.controls.said
        if self.primary.status == "pass":
            return Finding(None, "undetermined", "controls contradict", open=said)
        answer = gone_without_settings(Case(self.evidence, self.primary))
        if answer.value == "yes":
            says = "the controls fail too, and the arm passes without the settings of this environment"
            found = Finding("B7", "environment", says, number="0")
            return _with_records(found, (self.first, self.primary, *answer.records, *self.controls.records))
        return _not_run(*said, *(n.text() for n in answer.needs), needs=answer.needs)

    def _without_primary(self) -> Finding:
        """The arm decided on has no conclusive watched record."""
        needs = self._own_needs()
        tried = self.evidence.of(self.arm, ("arm",), watched=True)
        hung = [r for r in tried if r.status == "timeout" and r.stage not in ("none", "launch")]
        if hung:
            why = f"the question's arm: {hung[0].reason}"
            return Finding(None, "undetermined", "no class fits: it did not end", open=(why,), needs=needs)
        if tried:
            said = tuple(dict.fromkeys(f"the question's arm: {r.status}, {r.reason}" for r in tried))
            return _not_run(*said, needs=needs)
        why = f"the question's arm has no record: {self.arm.label()}"
        return Finding(None, "undetermined", "the question's arm was not probed", open=(why,), needs=needs)

    def _own_needs(self) -> tuple[Need, ...]:
        if self.primary is not None:
            return ()
        return (Need("arm", self.arm, "the question"), self._unwatched_need())

    def _unwatched_need(self) -> Need:
        return Need("unwatched", self.arm, "the same with witnesses off", watched=False)


def _primary(evidence: Evidence, arm: Arm) -> Record | None:
    """The record to be explained: the watched one, but for a pass beside a capture that a thread of the step broke."""
    found = [r for r in evidence.of(arm, ("arm",), watched=True) if r.status in ev.CONCLUSIVE]
    if found and found[0].status == "pass":
        found = [r for r in evidence.of(arm, ("unwatched",)) if ev.lone_901(r) and r.effective.get("threads")] or found
    return found[0] if found else None


def _not_run(*said: str, needs: tuple[Need, ...] = ()) -> Finding:
    return Finding(None, "not_run", "the diagnostic did not run", open=said, needs=needs)


def _with_records(finding: Finding, records: tuple) -> Finding:
    kept = tuple(r for r in records if r is not None)
    return Finding(finding.cls, finding.owner, finding.says, kept, number=finding.number)
