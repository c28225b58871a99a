"""From a gallery run's records to {case, expected, got}: each case judged on its own probes, as `probe` would."""

from dataclasses import dataclass, field
from typing import Any

from ..attribution import judge, load_hypothesis
from ..attribution.plan import next_probes
from ..params import validate
from ..probes.probe import Probe
from ..records import Record
from .case import Case

HYPOTHESIS = "own_kernel"
DEADLINE = {1: 60.0, 2: 60.0, 3: 150.0}
"""Seconds a probe may take, by the case's cost."""


@dataclass
class Asked:
    """One case in a run: what is asked of it, and the probes asked for so far, in that order, each with its role.

    The role is the case's: what one case runs as a fix may be the very question of another.
    """

    case: Case
    info: dict[str, Any]
    probes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, nonce: str) -> "Asked":
        """The case as a run of its own would ask it, under the gallery run's nonce."""
        params = validate(
            {
                "preset": "gallery",
                "hypothesis": HYPOTHESIS,
                "subject": case.target,
                "question": case.question,
                "options": case.options,
                "env": case.env,
                "deadline": DEADLINE[case.cost],
            }
        )
        question = load_hypothesis(HYPOTHESIS).asks(params)
        return cls(case, {"nonce": nonce, "question": question.model_dump(), "parameters": params.model_dump()})

    def records(self, known: dict[str, Record]) -> list[Record]:
        return [known[name].model_copy(update={"role": self.probes[name]}) for name in self.probes if name in known]

    def wants(self, known: dict[str, Record]) -> list[Probe]:
        """Probes that the verdict still needs. Times are left out: they want the GPU to themselves."""
        return [p for p in next_probes(self.info, self.records(known)) if not p.exclusive]

    def verdict(self, known: dict[str, Record]):
        return judge(self.info, None, self.records(known))

    def result(self, known: dict[str, Record]) -> dict[str, Any]:
        """{"case", "expected", "got", "ok", "seconds", ...}; seconds: of its processes together."""
        verdict, records = self.verdict(known), self.records(known)
        expected = {"owner": self.case.owner, "class": self.case.cls}
        got = {"owner": verdict.owner, "class": verdict.class_}
        if self.case.cured:
            expected["fixed"], got["fixed"] = "fixed", verdict.fixed
        return {
            "case": self.case.id,
            "expected": expected,
            "got": got,
            "ok": got == expected,
            "seconds": round(sum(record.seconds for record in records), 1),
            "probes": len(records),
            "says": verdict.sentence,
        }


def entries(plan: list[dict], cases: dict[str, Case], nonce: str) -> tuple[list[Asked], list[str]]:
    """A run's plan as Asked, and the ids of cases in it that the table has no more."""
    found, gone = [], []
    for entry in plan:
        case = cases.get(entry["case"])
        if case is None:
            gone.append(entry["case"])
            continue
        asked = Asked.of(case, nonce)
        asked.probes = dict(entry["probes"])
        found.append(asked)
    return found, gone


def with_repaired(cases: list[Case]) -> list[Case]:
    """The cases, then their fixed variants: a run that is cut off has the cases first."""
    return cases + [fixed for case in cases if (fixed := case.repaired())]
