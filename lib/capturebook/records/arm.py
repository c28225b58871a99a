"""The arm: one point in the space of ways to use a step, and the question that a run answers."""

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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


class Arm(BaseModel):
    """How a step is used. Every field but `env` is one factor; None means "the subject's default".

    `compile` is a torch.compile mode, or the backend "eager" or "aot_eager". `kernel_cold` warms the stack
    (cuBLAS, another compiled function) but never calls the step. `stream` and `thread` say where the warm-up
    runs, relative to the capture.
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

    def changed(self, **factors) -> "Arm":
        """This arm with some factors changed, validated again."""
        return Arm(**{**self.model_dump(), **factors})

    def differences(self, other: "Arm") -> dict[str, tuple]:
        """Factors in which two arms differ: {name: (mine, the other's)}."""
        mine, theirs = self.model_dump(), other.model_dump()
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}

    def label(self, base: "Arm | None" = None) -> str:
        """Short text: the factors that differ from `base` (default: a plain Arm())."""
        diff = self.differences(base or Arm())
        return " ".join(f"{name}={_word(value)}" for name, (value, _) in diff.items()) or "default arm"


def _word(value) -> str:
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
        if not eq or name not in Arm.model_fields or name == "env":
            allowed = ", ".join(n for n in Arm.model_fields if n != "env")
            raise ValueError(f"question: {part!r} is not factor=value; factors are {allowed}")
        if name in factors:
            raise ValueError(f"question: {name} is given twice; allowed: each factor once")
        factors[name] = _read_factor(name, value)
    return factors


def _read_factor(name: str, value: str):
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
        where = ".".join(str(p) for p in first["loc"])
        raise ValueError(f"arm: {where}={first['input']!r}; {first['msg'].lower()}") from None
