"""The record: one probe, build row, notebook or measurement, as one line of JSON that anyone can read later."""

import hashlib
import json
import math
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .arm import Arm
from .readings import READ_BACK, Effective, Graph, Payload, check_samples

SCHEMA = 1
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
Status = Literal["pass", "wrong", "fail", "timeout", "not_run", "skipped"]
Stage = Literal["none", "launch", "build", "compile", "warmup", "capture", "replay", "verify", "time", "done"]


_DRIVEN = ("compile", "warmup", "capture", "replay", "verify", "time")
"""Stages of a step that is built: what ends it there by an exception still reads the configuration back."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Frame(_Strict):
    """One line of a traceback. `tag` is whose code it is; `file` is relative to repository, run or site-packages."""

    file: str
    line: int
    function: str
    tag: Literal["subject", "capturebook", "torch", "inductor", "triton", "library"]


class Link(_Strict):
    """One exception of a chain. `code` and `name` are CUDA's (905, cudaErrorStreamCaptureIsolation) or None."""

    type: str
    module: str
    code: int | None = None
    name: str | None = None
    text: str
    thread: str = "main"
    frames: list[Frame] = Field(default_factory=list)


class Event(_Strict):
    """One witness reading: something of note happened, `capturing` or not.

    kind: jit, module_load, autotune (a raw Triton tuning), inductor_autotune, dynamo (a frame is compiled),
    recompile (with the guard that failed), wait (on work outside the capture), launch (a stream outside it was
    current), sync (outside a capture: each line of the subject's that waits, once), allocator (a call to it), oom,
    capture_begin (inside a capture), thread_call (another thread's), thread_error, warning.
    """

    kind: str
    capturing: bool
    what: str
    frame: Frame | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class Check(_Strict):
    """One comparison with the reference: `error` is max|got-want| / max|want| of one output in one call.

    None: not finite; where it is `ok`, there was nothing to compare, or the step's own check was asked.
    """

    call: str
    output: str
    error: float | None
    tolerance: float
    ok: bool


class Subject(_Strict):
    """What is probed: `target` is pkg.mod:build or file.py:build, `options` go to build as keywords."""

    target: str
    options: dict[str, Any] = Field(default_factory=dict)


class Record(_Strict):
    """One probe's outcome. Units: seconds for `seconds`, microseconds for `samples`.

    kind "step" is one arm taken through the driver: evidence. Others are not, whatever their arm: "trace" is Dynamo's
    trace on a CPU, "gain" two arms timed in turns, "counters" what a profiler counted of a sweep point's kernels.

    `chain` runs from the outermost exception to the root (last). A record that did not pass carries no samples.
    `payload` belongs to the record's kind (a build row, a sweep point, a floor). What a step's `effective`, `graph` and
    `payload` may hold is in readings.py.
    """

    schema_version: int = SCHEMA
    run: str
    probe: str
    nonce: str
    kind: Literal["step", "build", "interpret", "trace", "sweep", "floor", "gain", "counters", "notebook", "launch"]
    notebook: str = ""
    role: Literal["arm", "control", "repeat", "unwatched", "feeder", "fix", "scrubbed"] = "arm"
    subject: Subject | None = None
    arm: Arm | None = None
    seed: int = 0
    watched: bool = True
    status: Status
    reason: str = ""
    stage: Stage = "none"
    exit: dict[str, int | None] = Field(default_factory=dict)
    chain: list[Link] = Field(default_factory=list)
    events: list[Event] = Field(default_factory=list)
    counts: dict[str, int] = Field(default_factory=dict)
    effective: dict[str, Any] = Field(default_factory=dict)
    tuning: dict[str, Any] = Field(default_factory=dict)
    graph: dict[str, Any] = Field(default_factory=dict)
    checks: list[Check] = Field(default_factory=list)
    caveats: list[str] = Field(default_factory=list)
    samples: dict[str, list[float]] = Field(default_factory=dict)
    payload: dict[str, Any] = Field(default_factory=dict)
    provenance: dict[str, Any] = Field(default_factory=dict)
    started: str
    ended: str
    seconds: float = 0.0
    log: str = ""

    @model_validator(mode="after")
    def _no_speed_without_correctness(self):
        if self.samples and self.status != "pass":
            raise ValueError(f"a record with status {self.status!r} carries no samples")
        if self.status in ("not_run", "skipped") and not self.reason:
            raise ValueError(f"a record with status {self.status!r} needs a reason")
        return self

    @model_validator(mode="after")
    def _readings_are_what_they_are_called(self):
        if self.schema_version != SCHEMA:
            raise ValueError(f"schema {self.schema_version}; this version reads {SCHEMA}")
        if self.kind in ("step", "trace", "gain"):
            for name, model in (("effective", Effective), ("graph", Graph), ("payload", Payload)):
                try:
                    model.model_validate(getattr(self, name))
                except ValidationError as error:
                    first = error.errors()[0]
                    raise ValueError(f"{'.'.join(map(str, (name, *first['loc'])))}: {first['msg']}") from None
        if self.status == "pass" and (self.samples or self.kind == "gain"):
            check_samples(self.kind, self.samples)
        return self

    @property
    def root(self) -> Link | None:
        """The innermost exception: what happened first."""
        return self.chain[-1] if self.chain else None

    @property
    def unread(self) -> bool:
        """A step that came so far that its configuration is read back, and whose record holds none: it shows nothing.

        A process that died took the readings with it; its record has no chain.
        """
        came = self.status in ("pass", "wrong") or (self.status == "fail" and self.chain and self.stage in _DRIVEN)
        return self.kind == "step" and bool(came) and not set(READ_BACK) <= set(self.effective)

    def to_line(self) -> str:
        """One line of JSON. Raises ValueError on NaN or Infinity, which are not JSON."""
        return json.dumps(self.model_dump(), allow_nan=False, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> "Record":
        return cls.model_validate_json(line)


def printable(text: str) -> str:
    """A text that a terminal shows and does not obey: control characters but tab and newline become `\\x1b`."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def finite(value: float) -> float | None:
    """A float as records may hold it: NaN and infinities become None."""
    return value if math.isfinite(value) else None


def probe_id(kind: str, subject: Subject | None, arm: Arm | None, seed: int, **more) -> str:
    """12 hex digits naming a probe: a hash of what is asked, the same in every run."""
    what = {
        "kind": kind,
        "subject": subject.model_dump() if subject else None,
        "arm": arm.model_dump() if arm else None,
        "seed": seed,
        **more,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
