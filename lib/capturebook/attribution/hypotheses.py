"""Hypotheses as data: a YAML file with a question, arms, and what each of several rivals predicts for each arm."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import paths
from ..params import load_preset
from ..records import Arm, Question, arm_from, parse_factors

FOLDER = Path("params") / "hypotheses"


class HypothesisError(ValueError):
    """A hypothesis that cannot be read. One line: the file, where in it, what was given, what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Asked(_Strict):
    """The question: factors on top of `base`, and the CUDA error seen there, if one was.

    `follow_compiled`: if this arm passes, the same with compile=default is the one asked about.
    """

    arm: dict = Field(default_factory=dict)
    error: int | None = Field(default=None, ge=1)
    follow_compiled: bool = False


class PlannedArm(_Strict):
    """One arm: factors on top of `base` (`option.NAME`: a keyword of build), and why it is worth a probe."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    factors: dict = Field(default_factory=dict)
    why: str = Field(min_length=1)


class Prediction(_Strict):
    """What an arm must show. `code` is the CUDA code at the root; without one any failure will do."""

    status: Literal["pass", "wrong", "fail"]
    code: int | None = None

    def words(self) -> str:
        return f"{self.status} with {self.code}" if self.code else self.status


class Rival(_Strict):
    """One explanation, and what it says of each arm. An arm it does not name it says nothing about."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    statement: str = Field(min_length=1)
    predicts: dict[str, Prediction]


class Fix(_Strict):
    """Something that is said to cure the failure, and the arms that show whether it does."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    arms: list[str] = Field(min_length=1)
    says: str = Field(min_length=1)


class Hypothesis(_Strict):
    """What hypothesis.json holds. Every arm is `base` with its own factors on top."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str = Field(min_length=1)
    story: str
    question: Asked = Asked()
    base: dict = Field(default_factory=dict)
    arms: list[PlannedArm] = Field(min_length=1)
    rivals: list[Rival] = Field(min_length=1)
    fixes: list[Fix] = Field(default_factory=list)

    @model_validator(mode="after")
    def _agree(self):
        """Arms that can be built, ids and arms that occur once, and predictions and fixes about arms that exist."""
        ids = [arm.id for arm in self.arms]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"arms: the id {name!r} is given twice")
        seen: dict[str, str] = {}
        for planned in self.arms:
            text = self._build(f"arms.{planned.id}", planned.factors).model_dump_json()
            if text in seen:
                raise ValueError(f"arms.{planned.id}: the same arm as {seen[text]}")
            seen[text] = planned.id
        self._build("question", self.question.arm)
        for kind, entries in (("rivals", self.rivals), ("fixes", self.fixes)):
            for entry in entries:
                for name in entry.predicts if kind == "rivals" else entry.arms:
                    if name not in ids:
                        raise ValueError(f"{kind}.{entry.id}: no arm {name!r}; arms are {', '.join(ids)}")
        return self

    def _build(self, where: str, factors: dict) -> Arm:
        try:
            return arm_from(factors, arm_from(self.base))
        except ValueError as exc:
            raise ValueError(f"{where}: {exc}") from None

    def arm(self, name: str) -> Arm:
        """The arm of an id. Raises KeyError for an id that no arm has."""
        return {planned.id: arm_from(planned.factors, arm_from(self.base)) for planned in self.arms}[name]

    def probes(self, params=None) -> list[tuple[str, Arm]]:
        """Every planned arm with its id, in the file's order. `params`: see `asks`; arms take nothing from it."""
        return [(planned.id, self.arm(planned.id)) for planned in self.arms]

    def asks(self, params=None) -> Question:
        """The question: what the file asks, or the factors of `params.question` on top of `base`.

        `params` is a Params or None. Raises ValueError, one line, for factors that no arm has.
        """
        if params is not None and params.question:
            arm = arm_from(parse_factors(params.question), arm_from(self.base))
            return Question(arm=arm, error=params.error or None)
        arm = arm_from(self.question.arm, arm_from(self.base))
        return Question(arm=arm, error=self.question.error, follow_compiled=self.question.follow_compiled)


def hypothesis_names() -> list[str]:
    """The shipped hypotheses, by name."""
    return sorted(path.stem for path in (paths.repository() / FOLDER).glob("*.yaml"))


def load_hypothesis(name: str | Path) -> Hypothesis:
    """A shipped hypothesis (`story`) or a YAML file (a relative path is taken from the repository).

    Raises HypothesisError, one line, when there is no such file, it is not YAML, or it breaks the model.
    """
    text = str(name)
    path = paths.resolve(text if text.endswith((".yaml", ".yml")) else FOLDER / f"{text}.yaml")
    if not path.is_file():
        choice = f"{', '.join(hypothesis_names())}, or a YAML file"
        raise HypothesisError(f"hypothesis: given {text!r}, which is no file; allowed: {choice}")
    try:
        return Hypothesis(**load_preset(path))
    except ValidationError as exc:
        raise HypothesisError(f"hypothesis: {paths.shown(path)}: {_first(exc)}") from None
    except ValueError as exc:
        raise HypothesisError(f"hypothesis: {str(exc).removeprefix('preset: ')}") from None


def _first(exc: ValidationError) -> str:
    """The first error in one line: where, what was given, what is allowed."""
    error = exc.errors(include_url=False)[0]
    if not error["loc"]:
        return str(error["ctx"]["error"])
    where = ".".join(str(part) for part in error["loc"])
    given = repr(error["input"])
    shown = given if len(given) <= 60 else f"{given[:57]}..."
    return f"{where}={shown}; {error['msg'].lower()}"
