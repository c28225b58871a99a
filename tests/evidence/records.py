"""Records as a probe on an H200 would leave them, written by hand in a few words.

`fail(905, frames="wait_stream")` and the like follow the chains seen on torch 2.11: capture_end's 901 outside, the root
inside. Nothing here asks the code under test what a record should look like.
"""

from capturebook.records import Arm, Check, Event, Frame, Link, Question, Record, Subject, probe_id
from capturebook.records.cuda_errors import CUDA_ERRORS

NONCE = "0123456789abcdef"
SUBJECT = Subject(target="my_step.py:build")
READ_BACK = {
    "torch": "2.11.0+cu130", "triton": "3.6.0", "device": "cuda", "suspect_variables": {}, "threads": [],
}  # fmt: skip
"""What every step that was driven leaves in `effective`."""
SUBJECT_FRAME = Frame(file="my_step.py", line=40, function="step", tag="subject")
FRAMES = {
    "subject": [SUBJECT_FRAME],
    "wait_stream": [SUBJECT_FRAME, Frame(file="torch/cuda/streams.py", line=70, function="wait_stream", tag="torch")],
    "autotune": [
        SUBJECT_FRAME,
        Frame(file="triton/runtime/autotuner.py", line=161, function="_bench", tag="triton"),
        Frame(file="torch/cuda/__init__.py", line=1083, function="synchronize", tag="torch"),
    ],
    "inductor_tuning": [
        SUBJECT_FRAME,
        Frame(file="torch/_inductor/runtime/triton_heuristics.py", line=900, function="bench", tag="inductor"),
        Frame(file="torch/cuda/__init__.py", line=1083, function="synchronize", tag="torch"),
    ],
    "generated": [
        SUBJECT_FRAME,
        Frame(file="torch/_functorch/_aot_autograd/runtime_wrappers.py", line=500, function="wrapper", tag="torch"),
        Frame(file="inductor/ab/cabc.py", line=90, function="call", tag="inductor"),
    ],
    "trees": [
        SUBJECT_FRAME,
        Frame(file="torch/_inductor/cudagraph_trees.py", line=2330, function="record_function", tag="inductor"),
        Frame(file="torch/cuda/__init__.py", line=1083, function="synchronize", tag="torch"),
    ],
    "none": [],
}


def info(arm: Arm | None = None, error: int | None = None, follow_compiled: bool = False, **parameters) -> dict:
    """run.json, as far as attribution reads it."""
    question = Question(arm=arm or Arm(), error=error, follow_compiled=follow_compiled)
    given = {
        "subject": SUBJECT.target,
        "options": {},
        "heads": 64,
        "env": {},
        "preload": [],
        "seed": 0,
        "deadline": 60.0,
    }
    return {"run": "made-up", "nonce": NONCE, "question": question.model_dump(), "parameters": {**given, **parameters}}


def record(
    arm: Arm, status: str = "pass", *, role: str = "arm", subject: Subject = SUBJECT, tag: str = "", **fields
) -> Record:
    """One step record. `tag` tells repeats of the same probe apart."""
    watched = role != "unwatched"
    base = {
        "run": "made-up",
        "probe": probe_id("step", subject, arm, 0, role=role, tag=tag),
        "nonce": NONCE,
        "kind": "step",
        "role": role,
        "subject": subject,
        "arm": arm,
        "watched": watched,
        "status": status,
        "stage": "replay" if status in ("pass", "wrong") else "capture",
        "started": "2026-11-30T12:00:00.000+00:00",
        "ended": "2026-11-30T12:00:03.000+00:00",
    }
    if status == "pass":
        base["checks"] = [
            Check(call=f"replay {i}", output="out", error=1e-3, tolerance=3e-3, ok=True) for i in (1, 2, 3)
        ]
    return Record(**{**base, **fields, "effective": {**READ_BACK, **fields.get("effective", {})}})


def link(code: int | None, text: str = "", kind: str = "", module: str = "torch", frames: str = "subject") -> Link:
    """One exception. With a code, torch's AcceleratorError of that code."""
    name, said = CUDA_ERRORS[code] if code else (None, text)
    return Link(
        type=kind or ("AcceleratorError" if code else "RuntimeError"),
        module=module,
        code=code,
        name=name,
        text=text or f"CUDA error: {said}",
        frames=FRAMES[frames],
    )


SURFACE = link(901, frames="none")
"""What torch.cuda.graph raises on top of everything."""


def fail(arm: Arm, code: int | None = None, text: str = "", *, frames: str = "subject", seen=(), kind: str = "",
         module: str = "torch", **fields) -> Record:  # fmt: skip
    """A failure in the capture: 901 outside, the given root inside. `seen` are witness kinds that fired meanwhile."""
    events = [Event(kind=name, capturing=True, what=name, frame=SUBJECT_FRAME) for name in seen]
    chain = [SURFACE, link(code, text, kind, module, frames)]
    counts = {f"{name}@capture": 1 for name in seen}
    return record(arm, "fail", **{"chain": chain, "events": events, "counts": counts, **fields})


def early(
    arm: Arm, text: str, kind: str = "RuntimeError", module: str = "builtins", stage: str = "compile", **fields
) -> Record:
    """A failure before any capture."""
    return record(arm, "fail", chain=[link(None, text, kind, module)], stage=stage, **fields)


def wrong(arm: Arm, call: str, ok_after: bool = True, **fields) -> Record:
    """A wrong result, first seen in `call`; later calls are right or not."""
    checks = [Check(call=call, output="out", error=1.0, tolerance=1e-3, ok=False)]
    if not call.startswith("warm-up 1"):
        checks.insert(0, Check(call="warm-up 1", output="out", error=0.0, tolerance=1e-3, ok=True))
    elif ok_after:
        checks.append(Check(call="warm-up 2", output="out", error=0.0, tolerance=1e-3, ok=True))
    return record(arm, "wrong", **{"checks": checks, "reason": f"{call}: out is off", **fields})


def controls() -> list[Record]:
    """The three controls, behaving."""
    arm = Arm(variant="control", warmup="warm1")

    def about(name: str) -> dict:
        return {"role": "control", "subject": Subject(target=f"capturebook.subjects.controls:{name}")}

    return [
        record(arm, "pass", **about("trivial")),
        fail(arm, 900, **about("planted_item")),
        wrong(arm, "replay 2", **about("baked_scalar")),
    ]


def again(first: Record) -> Record:
    """The same probe with the witnesses off: same end, no readings, no graph."""
    probe = probe_id("step", first.subject, first.arm, 0, role="unwatched")
    gone = {"events": [], "counts": {}, "graph": {}, "samples": {}}
    return first.model_copy(update={"probe": probe, "role": "unwatched", "watched": False, **gone})


def run_of(*records: Record) -> list[Record]:
    """A run's records: the controls, the question's arm (given first) watched and unwatched, then the others."""
    return [*controls(), records[0], again(records[0]), *records[1:]]
