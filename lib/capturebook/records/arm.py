"""The arm: one point in the space of ways to use a step, and the question that a run answers."""

import json
import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

Warmup = Literal["cold", "kernel_cold", "warm1", "warm2", "warm3"]
Compile = Literal[
    "none",
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "eager",
    "aot_eager",
]
Capture = Literal["none", "global", "thread_local", "relaxed"]

SUBJECT_FACTORS = ("kernel", "overlap", "sync", "graph_break", "batch", "context", "max_context")
"""Factors that the subject's `build` must take; None leaves them at the subject's default."""

OPTION = "option."
"""Begins the name of a factor that is any other keyword of the subject's `build`: `option.glue`."""

UNSET = "(unset)"
"""In a difference, for an option that one of the two arms does not set."""


class Arm(BaseModel):
    """How a step is used. Every field but `env` is one factor; None means "the subject's default".

    `compile` is a torch.compile mode, or the backend "eager" or "aot_eager". `kernel_cold` warms the stack
    (cuBLAS, another compiled function) but never calls the step. `stream` and `thread` say where the warm-up
    runs, relative to the capture. `options` are keywords of the subject's `build`, text, number, true, false or null,
    that go over the subject's own; each is a factor and may be given as `option.NAME`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    variant: Literal["step", "twin", "control"] = "step"
    kernel: str | None = None
    tuning: Literal["live", "pinned", "cached"] = "live"
    warmup: Warmup = "warm2"
    stream: Literal["capture", "other"] = "capture"
    thread: Literal["capture", "other"] = "capture"
    compile: Compile = "none"
    fullgraph: bool = False
    dynamic: bool | None = None
    capture: Capture = "global"
    overlap: bool | None = None
    sync: Literal["stream", "event"] | None = None
    graph_break: Literal["none", "before", "after_fork", "between"] | None = None
    batch: int | None = Field(default=None, ge=1)
    context: int | None = Field(default=None, ge=1)
    max_context: int | None = Field(default=None, ge=1)
    env: dict[str, str] = Field(default_factory=dict)
    caches: Literal["empty", "warm"] = "warm"
    options: dict[str, str | bool | int | float | None] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _options(cls, given):
        """Gather what is given as `option.NAME` into `options`, by name."""
        options = given.get("options", {}) if isinstance(given, dict) else None
        if isinstance(options, dict):
            named = {name.removeprefix(OPTION): value for name, value in given.items() if name.startswith(OPTION)}
            given = {name: value for name, value in given.items() if not name.startswith(OPTION)}
            given["options"] = {name: _option(name, value) for name, value in sorted({**options, **named}.items())}
        return given

    @model_serializer(mode="wrap")
    def _written(self, write):
        """Without options as if there were none to have: the probe keeps the id that it has in every earlier run."""
        data = write(self)
        if not self.options:
            data.pop("options", None)
        return data

    def changed(self, **factors) -> "Arm":
        """This arm with some factors changed, validated again."""
        return Arm(**{**self.model_dump(), **factors})

    def factors(self) -> dict[str, Any]:
        """Every factor by name: the fields, and `option.NAME` for each option that is set."""
        fields = {name: getattr(self, name) for name in Arm.model_fields if name != "options"}
        return fields | {OPTION + name: value for name, value in self.options.items()}

    def differences(self, other: "Arm") -> dict[str, tuple]:
        """Factors in which two arms differ: {name: (mine, the other's)}."""
        mine, theirs = self.factors(), other.factors()
        pairs = {name: (mine.get(name, UNSET), theirs.get(name, UNSET)) for name in {**mine, **theirs}}
        return {name: (one, two) for name, (one, two) in pairs.items() if one != two}

    def label(self, base: "Arm | None" = None) -> str:
        """Short text: the factors that differ from `base` (default: a plain Arm())."""
        diff = self.differences(base or Arm())
        return " ".join(f"{name}={_word(name, value)}" for name, (value, _) in diff.items()) or "default arm"


def _word(name: str, value) -> str:
    if name.startswith(OPTION):
        return write_option(value)
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in sorted(value.items())) or "unset"
    return value if isinstance(value, str) else json.dumps(value)


class Question(BaseModel):
    """What a run asks: one arm and, if known, the CUDA error code seen there (e.g. 905).

    `follow_compiled` is set for the default question only: when the uncompiled arm passes, the same arm
    with compile=default is the one the verdict is about.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    arm: Arm = Arm()
    error: int | None = None
    follow_compiled: bool = False


def parse_factors(text: str) -> dict:
    """`compile=default,fullgraph=true,batch=8` -> {"compile": "default", "fullgraph": True, "batch": 8}.

    Values are read by the factor's declared type. Raises ValueError, one line, naming the factor, what was
    given and what is allowed.
    """
    factors = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, eq, value = part.partition("=")
        name, value = name.strip(), value.strip()
        fields = [n for n in Arm.model_fields if n not in ("env", "options")]
        factors_are = f"factors are {', '.join(fields)}, {OPTION}NAME"
        if not eq:
            raise ValueError(f"question: {part!r} is not factor=value; {factors_are}")
        if name not in fields and not name.startswith(OPTION):
            raise ValueError(f"question: {part!r} names no factor; {factors_are}")
        if name in factors:
            raise ValueError(f"question: {name} is given twice; allowed: each factor once")
        factors[name] = _read_factor(name, value)
    return factors


def _read_factor(name: str, value: str):
    if name.startswith(OPTION):
        try:
            return read_option(value)
        except ValueError as exc:
            raise ValueError(f"question: {name}={value!r}; {exc}") from None
    kind = str(Arm.model_fields[name].annotation)
    if "bool" in kind:
        words = {"true": True, "false": False} | ({"none": None} if "None" in kind else {})
        if value not in words:
            raise ValueError(f"question: {name}={value!r}; allowed: {', '.join(words)}")
        return words[value]
    if "int" in kind:
        if not value.isdecimal():
            raise ValueError(f"question: {name}={value!r}; allowed: a whole number >= 1")
        return int(value)
    return value


def arm_from(factors: dict, base: Arm | None = None) -> Arm:
    """An Arm from factors, errors as one line naming factor, what was given and what is allowed."""
    from pydantic import ValidationError

    try:
        return (base or Arm()).changed(**factors)
    except ValidationError as exc:
        first = exc.errors()[0]
        if first["type"] == "value_error":
            raise ValueError(f"arm: {first['ctx']['error']}") from None
        where = ".".join(str(p) for p in first["loc"])
        raise ValueError(f"arm: {where}={first['input']!r}; {first['msg'].lower()}") from None


def _option(name: str, value):
    """The value of an option that may be a factor. Raises ValueError, one line, for any other."""
    if not name.isidentifier():
        raise ValueError(f"{OPTION}{name}={value!r}; allowed: a keyword of the subject's build")
    if name in (*SUBJECT_FACTORS, "tuning"):
        raise ValueError(f"{OPTION}{name}={value!r}; allowed: {name}, which is a factor of its own")
    scalar = value is None or isinstance(value, (str, bool, int, float))
    if not scalar or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{OPTION}{name}={value!r}; allowed: text, a finite number, true, false or null")
    return value


def read_option(text: str):
    """An option's value from text: JSON (true, 8, null, "8"), else the text itself. Raises ValueError."""
    if text[:1] in ("", "[", "{"):
        raise ValueError("allowed: text, a number, true, false or null")
    try:
        return json.loads(text)
    except ValueError:
        if text.startswith('"'):
            raise ValueError("allowed: JSON, or text without quotes and commas") from None
        return text


def write_option(value) -> str:
    """An option's value as `read_option` reads it: text that would be read as anything else stands in quotes."""
    try:
        plain = isinstance(value, str) and value == value.strip() and read_option(value) == value
    except ValueError:
        plain = False
    return value if plain else json.dumps(value)
