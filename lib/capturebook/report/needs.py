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
        if r.kind != "step" or r.arm is None or r.arm.variant != "step" or r.role != "arm" or r.status not in words.RAN:
            continue
        differences = asked.differences(words.comparable(r.arm, asked))
        if len(differences) == 1:
            ((name, (mine, other)),) = differences.items()
            factors.setdefault(name, Factor(name, _value(name, mine))).changed.append((_value(name, other), r))
    return list(factors.values())


def _value(name: str, value) -> str:
    return words.factor(name, value).partition("=")[2]


def needed(asked: Arm, records: list[Record]) -> Block:
    """A sentence and a table: for each factor, what happens when that one alone is changed."""
    own = [
        r
        for r in records
        if r.kind == "step"
        and r.arm
        and words.comparable(r.arm, asked) == asked
        and r.role == "arm"
        and r.status in words.RAN
    ]
    factors = one_factor(asked, records)
    if not own or not factors:
        return paragraph("The question's arm, or the arms that differ from it in one factor, did not run.")
    failure = words.short(own[0])
    if failure == "pass":
        said = "The question's arm passes. What happens when one factor of it is changed:"
        rows = [[f.name, f.asked, _outcomes(f)] for f in factors]
        return paragraph(said) + table(["Factor", "In the question", "Changed alone to"], rows)
    factors.sort(key=lambda f: (PARTS.index(f.part(failure)), f.name))
    rows = [[f.name, f.asked, _outcomes(f), f.part(failure)] for f in factors]
    columns = ["Factor", "In the question", "Changed alone to", "Its part in the failure"]
    return paragraph(sentence(failure, factors)) + table(columns, rows)


def _outcomes(factor: Factor) -> Markup:
    one = Markup('<span class="pair">{} {}</span> ')
    return Markup("").join(one.format(value, words.badge(r.status, words.short(r))) for value, r in factor.changed)


def sentence(failure: str, factors: list[Factor]) -> str:
    """`905 needs all of these: ...` computed from the outcomes."""
    groups = {part: [f for f in factors if f.part(failure) == part] for part in PARTS}
    needs = [f"{f.name}={f.asked}" for f in groups[PARTS[0]]]
    said = [f"No single change that was tried makes {failure} go away."]
    if needs:
        said = [f"{failure} needs {words.listed(needs)}: change any one of them alone and it can be made to go away."]
    others = [f"{f.name}={value} ({words.short(r)})" for f in factors for value, r in f.changed
              if r.status != "pass" and words.short(r) != failure]  # fmt: skip
    if others:
        said.append(f"Another outcome comes with {words.listed(others)}.")
    if groups[PARTS[2]]:
        inert = [f"{f.name}={value}" for f in groups[PARTS[2]] for value, _ in f.changed]
        said.append(
            f"It stays with {words.listed(inert)}: {'they have' if len(inert) > 1 else 'that has'} no part in it."
        )
    return " ".join(said)
