"""What the outcome of the question's arm rests on: arms that differ from it in one factor alone."""

from dataclasses import dataclass, field

from markupsafe import Markup

from ..records import Arm, Record
from . import words
from .block import Block, paragraph, table

PARTS = ("needed", "changes the error", "no part in it")


@dataclass
class Factor:
    """One factor changed alone: its value in the question, and each other value with the record of that arm."""

    name: str
    asked: str
    changed: list[tuple[str, Record]] = field(default_factory=list)

    def part(self, failure: str) -> str:
        """`needed` if some change alone makes the arm pass; `no part in it` if every change leaves the same failure."""
        outcomes = {words.short(r) for _, r in self.changed}
        if "pass" in outcomes:
            return PARTS[0]
        return PARTS[2] if outcomes == {failure} else PARTS[1]


def one_factor(asked: Arm, records: list[Record]) -> list[Factor]:
    """Factors that some arm which ran changes alone, with what came of it."""
    factors: dict[str, Factor] = {}
    for r in records:
        if r.kind != "step" or r.arm is None or r.role not in ("arm", "fix") or r.status not in words.RAN:
            continue
        differences = asked.differences(words.comparable(r.arm, asked))
        if r.arm.variant != "control" and len(differences) == 1:
            ((name, (mine, other)),) = differences.items()
            factor = factors.setdefault(name, Factor(name, _value(name, mine)))
            if _value(name, other) not in dict(factor.changed):
                factor.changed.append((_value(name, other), r))
    return list(factors.values())


def _value(name: str, value) -> str:
    return words.factor(name, value).partition("=")[2]


def needed(asked: Arm, records: list[Record]) -> Block:
    """For each factor, what happens when that one alone is changed, and so what part it has in the failure."""
    own = [
        r for r in records if r.role == "arm" and r.status in words.RAN and words.where(r.arm, asked) == words.QUESTION
    ]
    factors = one_factor(asked, records)
    if not own or not factors:
        return paragraph("The question's arm, or the arms that differ from it in one factor, did not run.")
    failure = words.short(own[0])
    columns = ["Factor", "In the question", "Changed to"]
    if failure == "pass":
        return table(columns, [[f.name, f.asked, _outcomes(f)] for f in factors], stack=True)
    factors.sort(key=lambda f: (PARTS.index(f.part(failure)), f.name))
    rows = [[f.name, f.asked, _outcomes(f), f.part(failure)] for f in factors]
    return table([*columns, f"Its part in {failure}"], rows, stack=True)


def _outcomes(factor: Factor) -> Markup:
    one = Markup('<span class="pair">{} {}</span> ')
    return Markup("").join(one.format(value, words.badge(r.status, words.short(r))) for value, r in factor.changed)
