"""Whether the tables can read a record: what a build, a sweep point, an interpreted kernel, counters hold for them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..measure.rows import row_of, sweep_points
from ..records import Record


class _Holds(BaseModel):
    """Some of what a mapping holds; the rest may be anything."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class Build(_Holds):
    """A row of the build check, compiled or not."""

    kernel: str
    config: str
    target: str
    pinned: bool = False


class Compiled(Build):
    registers: int
    shared: int
    spills: int | None = None
    shared_limit: int | None = None
    occupancy: float | None = None
    fits: bool | None = None
    instructions: dict[str, int] = {}


class Listed(_Holds):
    """What there is to compile."""

    compilations: list = []


class Place(_Holds):
    """A place of a sweep record that was asked for several."""

    batch: int
    context: int
    max_context: int
    variants: dict[str, dict[str, Any]]


class Asked(_Holds):
    variants: dict[str, dict[str, Any]] = {}
    places: list[Place] = []


class Found(_Holds):
    variants: dict[str, dict[str, Any]] = {}
    left: dict[str, str] = {}


class Places(Found):
    places: dict[str, Found] = {}


class Point(_Holds):
    variant: str
    kernel: str
    tuning: str
    batch: int
    context: int | None


class Timed(Point):
    tokens_per_second: float | None
    floor_us: float | None = None
    floor_bound: str | None = None
    share: float | None = None
    gbps: float | None = None
    tflops: float | None = None
    left_out: list[str] = []
    method: str = ""
    work: str = ""
    tokens_per_second_means: str = ""


class Shaped(Timed):
    """A point of sparse MLA, which is held against the targets of its shape."""

    shape: str
    cache: Literal["bf16", "fp8", "v32"]
    heads: int
    context: int
    flops: float
    entries: float | None = None
    config: str
    floor_bound: str
    share: float
    gpu: str = ""


class Judged(Timed):
    """A point of a step that may have targets: see measure.targets_parts."""

    subject: str = ""
    median_us: float = Field(gt=0)
    gpu: str = ""
    kernels: int = 0


class Keyed(Judged):
    """A point of the indexer."""

    key_format: str
    context: int
    max_context: int = Field(ge=4)
    part: str = "whole"
    lengths: str = ""
    read_share: float | None = None
    scratch_a_row: float = 0.0


class Interpreted(_Holds):
    kernel: str = ""
    error: float | None = None
    tolerance: float | None = None


class Counted(_Holds):
    """A kernel of a sweep point under a profiler."""

    kernel: str
    us: float
    stalls: dict[str, float]


class Counters(_Holds):
    variant: str = ""
    shape: str
    cache: str
    context: int
    batch: int
    tool: str
    gpu: str
    kernels: dict[str, list[Counted]]


def unreadable(record: Record) -> str:
    """Which value the tables would miss in a record, as one line; "" where they can read it."""
    try:
        _read(record)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        return f"{'.'.join(map(str, error['loc']))}: {error['msg'].lower()}"
    return ""


def _read(record: Record) -> None:
    asked = record.subject.options if record.subject else {}
    if record.kind == "build":
        if "index" in asked:
            (Compiled if record.status == "pass" else Build)(**row_of(record))
        else:
            Listed(**record.payload)
    elif record.kind == "sweep":
        Asked(**asked)
        Places(**record.payload)
        for point in sweep_points([record]):
            kinds = {"lists": Shaped, "key_format": Keyed, "subject": Judged}
            timed = next((kind for name, kind in kinds.items() if point.get(name)), Timed)
            (timed if point["us"] else Point)(**point)
    elif record.kind == "interpret":
        Interpreted(**record.payload)
    elif record.kind == "counters" and record.status == "pass":
        Counters(**record.payload)
