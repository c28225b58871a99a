"""A run's records as the rules read them: who counts, what an arm showed, what a record's failure looks like."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..records import Arm, Link, Record
from ..records.settings import SETTINGS, settings_in

CONCLUSIVE = ("pass", "wrong", "fail")
"""Statuses that say something about the step. `timeout`, `not_run` and `skipped` support nothing."""

SIZES = ("batch", "context", "max_context")
_COMPANION_ROLES = ("arm", "fix", "repeat")
_BEFORE_CAPTURE = ("none", "launch", "build", "compile", "warmup")


@dataclass(frozen=True)
class Need:
    """A probe that is missing, and why it is wanted.

    `control` names one of the controls instead of an arm; `beside` is the arm to time it against in one process;
    `trivial` builds the step, whose threads run then, and captures a trivial operation in its stead.
    """

    role: str
    arm: Arm
    why: str
    watched: bool = True
    control: str = ""
    scrub: tuple[str, ...] = ()
    repeat: int = 0
    beside: Arm | None = None
    trivial: bool = False

    def text(self) -> str:
        """One line for `open`."""
        if self.control:
            return f"control {self.control}: {self.why}"
        extra = "" if self.watched else ", witnesses off"
        return f"{self.role}, {self.arm.label()}{extra}: {self.why}"


def same_arm(wanted: Arm, got: Arm) -> bool:
    """Equal in every factor; a size that `wanted` leaves open matches any.

    Which Triton kernel, and how it is tuned, means nothing to a twin: torch ops stand in for all of them.
    """
    differing = wanted.differences(got)
    if wanted.variant == got.variant == "twin":
        differing = {name: pair for name, pair in differing.items() if name not in ("kernel", "tuning")}
    return all(name in SIZES and mine is None for name, (mine, _) in differing.items())


class Evidence:
    """The records that count: kind `step`, this run's nonce, in an order that does not depend on the file's.

    `gains`: what fixed arms were timed at beside others. They tell nothing about the owner. `trivial`: captures of a
    trivial operation beside the step's threads. They are no records of the arm. `env`: variables that the run sets for
    every probe (an arm's own go over them; one that is empty there is taken away).
    """

    def __init__(self, nonce: str, records: list[Record], env: dict[str, str] | None = None):
        self.env = env or {}
        self.foreign = sum(1 for r in records if r.nonce != nonce)
        mine = [r for r in records if r.nonce == nonce and r.kind == "step" and r.role != "feeder" and r.arm]
        lines = {r.to_line(): r for r in mine}
        ordered = [lines[line] for line in sorted(lines, key=lambda line: (lines[line].probe, line))]
        self.gains = [r for r in records if r.nonce == nonce and r.kind == "gain"]
        self.trivial = [r for r in ordered if r.payload.get("trivial")]
        self.records = [r for r in ordered if not r.payload.get("trivial")]

    def controls(self, name: str) -> list[Record]:
        """Records of one control, scrubbed ones aside."""
        return [
            r for r in self.records
            if r.role == "control" and r.subject and r.subject.target.rpartition(":")[2] == name
        ]  # fmt: skip

    def arms(self) -> list[Record]:
        """Conclusive watched records of the subject, controls and scrubbed ones aside."""
        return [r for r in self.records if r.role in _COMPANION_ROLES and r.watched and r.status in CONCLUSIVE]

    def of(self, arm: Arm, roles: tuple[str, ...] = _COMPANION_ROLES, watched: bool | None = None) -> list[Record]:
        """All records of an arm with one of these roles, whatever their status."""
        return [
            r for r in self.records
            if r.role in roles and same_arm(arm, r.arm) and (watched is None or r.watched is watched)
        ]  # fmt: skip

    def companion(self, arm: Arm) -> list[Record]:
        """What an arm beside the question's showed: one conclusive record, or all of them where they disagree."""
        found = [r for r in self.of(arm) if r.status in CONCLUSIVE]
        if len({outcome(r) for r in found}) > 1:
            return found
        # A repeat (a timing, a try of the thread test) can contradict, but does not stand in for the arm's own record.
        return sorted((r for r in found if r.role != "repeat"), key=lambda r: (r.role, r.probe))[:1]


def outcome(record: Record) -> tuple:
    """What two records must share to agree: the status, and after a failure the root's code, or its type."""
    root = root_of(record)
    if record.status != "fail" or root is None:
        return (record.status,)
    return ("fail", root.code if root.code else root.type)


def root_of(record: Record) -> Link | None:
    """What happened first: the innermost exception of the chain."""
    return record.root


def lone_901(record: Record) -> bool:
    """A capture that was invalidated without any error of this thread's: 901 (capture_end) and nothing else."""
    return record.status == "fail" and bool(record.chain) and {link.code for link in record.chain} == {901}


def witnessed(record: Record, *kinds: str) -> int:
    """How often witnesses of these kinds fired while a capture was open."""
    counted = sum(record.counts.get(f"{kind}@capture", 0) for kind in kinds)
    return max(counted, sum(1 for e in record.events if e.capturing and e.kind in kinds))


def suspects(record: Record) -> dict[str, str]:
    """Allocator, debug and profiler settings in force in the probe, read back there, and those its arm sets."""
    return {**record.effective.get("suspect_variables", {}), **settings_in(record.arm.env)}


def failed_in_capture(record: Record) -> bool:
    return record.status == "fail" and record.arm.capture != "none" and record.stage == "capture"


def failed_before_capture(record: Record) -> bool:
    return record.status == "fail" and (record.arm.capture == "none" or record.stage in _BEFORE_CAPTURE)


def compiled(arm: Arm) -> bool:
    return arm.compile != "none"


def cold(arm: Arm) -> bool:
    return arm.warmup in ("cold", "kernel_cold")


def uncompiled(arm: Arm) -> Arm:
    """The same use of the step without torch.compile; the compiler's own variables then mean nothing."""
    env = {k: v for k, v in arm.env.items() if not k.startswith(("TORCHINDUCTOR_", "TORCHDYNAMO_"))}
    return arm.changed(compile="none", fullgraph=False, dynamic=None, env=env)


def compiles_itself(record: Record) -> bool:
    """The step calls torch.compile of its own accord, in an arm that compiles nothing."""
    return not compiled(record.arm) and record.counts.get("dynamo", 0) + record.counts.get("dynamo@capture", 0) > 0


COMPILER_OFF = {"TORCH_COMPILE_DISABLE": "1"}
"""torch.compile then gives back what it was given, wherever it is called."""

TREES_VARIABLE = "TORCHINDUCTOR_CUDAGRAPHS"
"""Switches cudagraph trees on in every mode: a matter of compiling (B3), no setting of the environment."""

_LIBRARIES_OWN = re.compile(r"(CUDA|CUDNN|CUBLAS|CUBLASLT|NCCL|NVIDIA|TORCH|PYTORCH|TORCHINDUCTOR|TORCHDYNAMO|TRITON)_")


def without_variables(arm: Arm, run: Mapping[str, str]) -> Arm:
    """The arm without the variables that it sets, and without those of CUDA, torch and triton that the run sets.

    The step's own variables, set for the whole run, stay: without them it may be another step. Allocator, debug and
    profiler settings have a test of their own (a scrubbed process).
    """
    kept = {k: v for k, v in arm.env.items() if k == TREES_VARIABLE}
    undone = {k: undo(k) for k in libraries_own(run) if k != TREES_VARIABLE}
    return arm.changed(env={**undone, **kept})


def libraries_own(run: Mapping[str, str]) -> list[str]:
    """Variables of CUDA, torch and triton that a run sets, those aside that a scrubbed process is for."""
    return [k for k in run if _LIBRARIES_OWN.match(k) and k not in SETTINGS]


def undo(name: str) -> str:
    """The value by which an arm undoes a variable that its run sets; an empty one takes it away."""
    return "0" if name == TREES_VARIABLE else ""


def twin(arm: Arm) -> Arm:
    return arm.changed(variant="twin")


def breach(record: Record) -> Link | None:
    """What the subject hands over breaks the Step contract: the error that says how, whatever it came from."""
    return next((link for link in record.chain if link.type == "SubjectError"), None)


def generic(record: Record) -> bool:
    """Another step stood in for the twin that the subject does not have: it tells of the stack, not of the subject."""
    return record.effective.get("twin") == "generic"


def last_subject_frame(link: Link) -> int:
    """Index of the innermost frame of the subject, -1 for none."""
    return max((i for i, frame in enumerate(link.frames) if frame.tag == "subject"), default=-1)


def in_compiled_code(link: Link) -> bool:
    """Raised in what torch.compile generated or runs for it: such a frame lies inside the subject's innermost one."""
    inner = link.frames[last_subject_frame(link) + 1 :]
    return any(f.tag == "inductor" or "_functorch/" in f.file or "_inductor/" in f.file for f in inner)


def first_wrong_call(record: Record) -> str:
    """Name of the first call whose comparison failed ("warm-up 1", "call 1", "replay 1"), "" for none."""
    return next((check.call for check in record.checks if not check.ok), "")
