"""Rivals' predictions against what the arms showed, and the conclusions that follow from the arms, in words."""

from dataclasses import asdict, dataclass, field

from ..records import Arm, Record
from . import evidence as ev
from .evidence import same_arm
from .hypotheses import Hypothesis, Prediction

HELD, CONTRADICTED, NOT_TESTED = "held", "contradicted", "not tested"


@dataclass
class ScoreRow:
    """One prediction: the arm, what was predicted, what was found, and the probes that showed it."""

    arm: str
    label: str
    why: str
    predicted: str
    found: str
    mark: str
    records: list[str] = field(default_factory=list)


@dataclass
class RivalScore:
    """One rival: its statement and one row for each arm it predicts. An arm that did not run tests nothing."""

    id: str
    statement: str
    rows: list[ScoreRow]

    def count(self, mark: str) -> int:
        return sum(row.mark == mark for row in self.rows)

    @property
    def held(self) -> int:
        return self.count(HELD)

    @property
    def contradicted(self) -> int:
        return self.count(CONTRADICTED)

    @property
    def not_tested(self) -> int:
        return self.count(NOT_TESTED)

    @property
    def total(self) -> int:
        return len(self.rows)

    def to_json(self) -> dict:
        return {**asdict(self), "held": self.held, "contradicted": self.contradicted, "not_tested": self.not_tested}


def as_hypothesis(given: Hypothesis | dict) -> Hypothesis:
    return given if isinstance(given, Hypothesis) else Hypothesis(**given)


def shown(arm: Arm, records: list[Record]) -> list[Record]:
    """Records of this run's subject in an arm, conclusive ones if there are any, ordered by probe."""
    roles = ("arm", "repeat", "fix", "unwatched")
    found = [r for r in records if r.kind == "step" and r.role in roles and r.arm and same_arm(arm, r.arm)]
    return sorted([r for r in found if r.status in ev.CONCLUSIVE] or found, key=lambda r: (r.probe, r.to_line()))


def score(hypothesis: Hypothesis | dict, records: list[Record]) -> list[RivalScore]:
    """Every rival's predictions marked held, contradicted or not tested. `records` are those of one run."""
    story = as_hypothesis(hypothesis)
    asked = story.asks().arm
    scores = []
    for rival in story.rivals:
        rows = []
        for planned in story.arms:
            if planned.id not in rival.predicts:
                continue
            arm = story.arm(planned.id)
            label = "the question's arm" if arm == asked else arm.label(asked)
            predicted, found = rival.predicts[planned.id], shown(arm, records)
            rows.append(
                ScoreRow(
                    planned.id,
                    label,
                    planned.why,
                    predicted.words(),
                    _found_words(found),
                    _mark(predicted, found),
                    sorted({r.probe for r in found}),
                )  # fmt: skip
            )
        scores.append(RivalScore(rival.id, rival.statement, rows))
    return scores


def neither_right(scores: list[RivalScore]) -> list[str]:
    """Arms that were tested, that every rival says something about, and where every rival is contradicted."""
    marks: dict[str, list[str]] = {}
    for rival in scores:
        for row in rival.rows:
            marks.setdefault(row.arm, []).append(row.mark)
    return [arm for arm, given in marks.items() if len(given) == len(scores) and set(given) == {CONTRADICTED}]


def _mark(predicted: Prediction, found: list[Record]) -> str:
    conclusive = [r for r in found if r.status in ev.CONCLUSIVE]
    if not conclusive:
        return NOT_TESTED
    return HELD if all(_agrees(predicted, r) for r in conclusive) else CONTRADICTED


def _agrees(predicted: Prediction, record: Record) -> bool:
    code = record.root.code if record.root else None
    return record.status == predicted.status and (predicted.code is None or predicted.code == code)


def _found_words(found: list[Record]) -> str:
    return " / ".join(dict.fromkeys(short(r) for r in found)) or "no record"


def short(record: Record) -> str:
    """`pass`, `fail with 905`, `fail with ValueError`."""
    if record.status == "fail" and record.root is not None:
        return f"fail with {record.root.code or record.root.type}"
    return record.status.replace("_", " ")
