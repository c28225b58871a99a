"""A comparison of launches as a hypothesis: arms that change a launch file, and what rivals predict for each."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ... import paths
from ...attribution.hypotheses import PlannedArm, Prediction
from ...params import load_preset
from ..spec import LaunchFile, LaunchFileError, Text, Variable, load, validated

Count = Annotated[int, Field(ge=1, le=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Change(_Strict):
    """What an arm does to the launch file: `env` on top of its own, words to `add` to its command (or script's args)
    at the end, words to `drop` from it, each of which must be there."""

    env: dict[Variable, Text] = Field(default_factory=dict)
    add: list[Text] = Field(default_factory=list)
    drop: list[Text] = Field(default_factory=list)

    def of(self, spec: LaunchFile, name: str) -> LaunchFile:
        """The changed launch file, called `name`. Raises ValueError, one line, for a word to drop that is not there."""
        field = "args" if spec.command is None else "command"
        words = list(getattr(spec, field))
        for word in self.drop:
            if word not in words:
                raise ValueError(f"drop: {word!r} is no word of the launch's {field}")
            words.remove(word)
        changed = {"env": {**spec.env, **self.env}, field: [*words, *self.add], "name": name, "source": spec.source}
        return validated({**spec.model_dump(exclude_none=True), **changed})


class ServerPrediction(Prediction):
    """As for any arm: pass (it gets ready) or fail, with a CUDA code at the root. `faster`: at least so many times
    the first arm's tokens/s at the largest concurrency; `slower`: at most so many times."""

    faster: float | None = Field(default=None, gt=0, strict=False)
    slower: float | None = Field(default=None, gt=0, strict=False)

    def words(self) -> str:
        bounds = [f"at least {self.faster:g} times as fast" if self.faster else "",
                  f"at most {self.slower:g} times as fast" if self.slower else ""]  # fmt: skip
        return ", ".join([super().words(), *filter(None, bounds)])


class ServerRival(_Strict):
    """One explanation, and what it says of each arm; an arm that it does not name it says nothing about."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    statement: str = Field(min_length=1)
    predicts: dict[str, ServerPrediction]


class Load(_Strict):
    """The requests that each arm that gets ready is asked."""

    concurrency: list[Count] = Field(default_factory=lambda: [1, 8], min_length=1, max_length=8)
    requests: Count = 32
    prompt_words: Annotated[int, Field(ge=1, le=16384)] = 64
    output_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    seconds: Annotated[float, Field(gt=0, le=600, strict=False)] = 60.0


class Comparison(_Strict):
    """A hypothesis about a server. `launch` is a launch file, relative to this one. The first arm is what speeds are
    compared with. With `rounds` above 1 all arms are launched again, in turns, so that drift is not taken for an arm's.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str = Field(min_length=1)
    story: str = ""
    launch: Text
    arms: list[PlannedArm] = Field(min_length=2)
    rivals: list[ServerRival] = Field(min_length=1)
    load: Load | None = Load()
    rounds: Annotated[int, Field(ge=1, le=9)] = 1
    source: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _agree(self):
        ids = [arm.id for arm in self.arms]
        if len(set(ids)) < len(ids):
            raise ValueError("arms: an id is given twice")
        for arm in self.arms:
            try:
                Change(**arm.factors)
            except ValidationError as exc:
                error = exc.errors()[0]
                where = ".".join(str(part) for part in error["loc"])
                raise ValueError(f"arms.{arm.id}: {where}={error['input']!r}; {error['msg'].lower()}") from None
        for rival in self.rivals:
            unknown = [arm for arm in rival.predicts if arm not in ids]
            if unknown:
                raise ValueError(f"rivals.{rival.id}: no arm {unknown[0]!r}; arms are {', '.join(ids)}")
        return self

    def specs(self) -> dict[str, LaunchFile]:
        """Arm -> its launch file. Raises LaunchFileError, one line, for a file or a change that cannot be used."""
        spec = load(Path(self.source).parent / self.launch)
        if self.load and spec.adapter is None:
            raise LaunchFileError(f"launch: {self.launch} has no adapter, so no load can be asked; set load: null")
        found = {}
        for arm in self.arms:
            try:
                found[arm.id] = Change(**arm.factors).of(spec, f"{self.name}-{arm.id}")
            except ValueError as exc:
                raise LaunchFileError(f"arms.{arm.id}: {exc}") from None
        return found


def is_comparison(name: str | Path, what: str = "launch file") -> bool:
    """Whether a YAML file holds arms, so that it compares launches. Raises LaunchFileError for what is no YAML, and
    calls it `what` there."""
    path = _path(name)
    return path.suffix in (".yaml", ".yml") and path.is_file() and "arms" in _values(path, what)


def load_comparison(name: str | Path) -> Comparison:
    """A comparison's YAML file. Raises LaunchFileError, one line, when it cannot be used."""
    path = _path(name)
    try:
        return Comparison(**_values(path), source=str(path))
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
    if not error["loc"]:
        raise LaunchFileError(f"comparison: {error['ctx']['error']}")
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        raise LaunchFileError(f"comparison: {where}: missing")
    raise LaunchFileError(f"comparison: {where}: given {error['input']!r:.80}; {error['msg'].lower()}")


def _values(path: Path, what: str = "comparison") -> dict:
    try:
        return load_preset(path)
    except ValueError as exc:
        raise LaunchFileError(f"{what}: {str(exc).removeprefix('preset: ')}") from None


def _path(name: str | Path) -> Path:
    return Path(name).absolute() if Path(name).is_file() else paths.resolve(name)
