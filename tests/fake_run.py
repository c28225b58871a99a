"""A made-up run folder for the report's tests: shaped like a run on an H200, with outcomes invented by `outcome` below.

Nothing here was measured. It follows the table of the story's step (compile x capture x side stream x graph break)
so that the report meets realistic records; genuine ones are in outputs/h200.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from capturebook.records import Arm, Check, Event, Frame, Link, Record, Subject, append, probe_id

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
BUILD = "capturebook.subjects.sparse_mla:build"
BASE = dict(
    kernel="mma", tuning="live", warmup="warm2", overlap=True, sync="stream", graph_break="between", capture="global"
)
TEXTS = {
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    905: (
        "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
    ),
}
ARMS = {
    "story": (dict(compile="default"), "the arm of the story"),
    "uncompiled": (dict(compile="none"), "the same without torch.compile"),
    "uncaptured": (dict(compile="default", capture="none"), "the same without capture"),
    "no_overlap": (dict(compile="default", overlap=False), "no side stream"),
    "no_break": (dict(compile="default", graph_break="none"), "no graph break"),
    "break_before": (dict(compile="default", graph_break="before"), "graph break before the fork"),
    "break_after_fork": (dict(compile="default", graph_break="after_fork"), "graph break right after the fork"),
    "events": (dict(compile="default", sync="event"), "joined by events"),
    "simt": (dict(compile="default", kernel="simt"), "the stock kernel"),
    "pinned": (dict(compile="default", tuning="pinned"), "the kernel's tuning pinned"),
    "max_autotune": (dict(compile="max-autotune-no-cudagraphs"), "a mode that tunes more"),
    "aot_eager": (dict(compile="aot_eager"), "AOTAutograd without Inductor"),
    "dynamo_only": (dict(compile="eager"), "Dynamo without AOTAutograd"),
    "trees": (dict(compile="reduce-overhead"), "cudagraph trees inside the capture"),
    "trees_off": (dict(compile="reduce-overhead", env={"TORCHINDUCTOR_CUDAGRAPHS": "0"}), "the variable set to 0"),
    "cold_live": (dict(compile="none", warmup="cold"), "a live autotune inside the capture"),
    "cold_pinned": (dict(compile="none", warmup="cold", tuning="pinned"), "cold, but pinned"),
    "cold_simt": (dict(compile="none", warmup="cold", kernel="simt"), "cold, stock kernel"),
    "plain": (dict(compile="none", graph_break="none", overlap=False), "the plain step"),
}
NOTEBOOKS = [
    ("00_hypothesis", 0, 2),
    ("01_kernel_build", 2, 40),
    ("02_graph_capture", 42, 18),
    ("03_compile_check", 60, 34),
    ("04_throughput_sweep", 94, 60),
    ("05_verdict", 154, 4),
]
PROVENANCE = {
    "python": "3.12.3",
    "torch": "2.11.0+cu130",
    "triton": "3.6.0",
    "driver": "580.159.04",
    "gpu": {"name": "NVIDIA H200", "sm": "sm_90", "memory_gib": 139.7, "clock_mhz": 1980},
    "code": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
}


def arm(identifier: str) -> Arm:
    return Arm(**{**BASE, **ARMS[identifier][0]})


def outcome(a: Arm) -> int | None:
    """The CUDA error code that this made-up GPU answers an arm with, or None where it passes."""
    if a.capture == "none":
        return None
    if a.compile == "none":
        return 900 if a.warmup == "cold" and a.tuning == "live" else None
    if a.compile in ("reduce-overhead", "max-autotune"):
        return 900
    if a.overlap and a.compile != "eager":
        if a.graph_break == "between" and a.sync == "stream":
            return 905
        if a.graph_break == "after_fork":
            return 900
    return None


def hypothesis() -> dict:
    """The story's two rivals, with predictions as its teller made them."""
    ids = list(ARMS)
    fail, passes = {"status": "fail", "code": 905}, {"status": "pass"}
    kernel = {i: fail if i in ("story", "uncompiled", "no_overlap", "events", "cold_live") else passes for i in ids}
    stack = {i: fail if i in ("story", "no_break", "no_overlap", "simt", "pinned", "events") else passes for i in ids}
    return {
        "name": "story",
        "title": "Whose 905 is it?",
        "story": "An MMA kernel replaced the stock one, torch.compile was switched on, and start-up died with 905.",
        "question": {"arm": {"compile": "default"}, "error": 905},
        "base": BASE,
        "arms": [{"id": i, "factors": factors, "why": why} for i, (factors, why) in ARMS.items()],
        "rivals": [
            {"id": "kernel", "statement": "The kernel's live autotune benchmarks during capture.", "predicts": kernel},
            {
                "id": "stack",
                "statement": "torch.compile and the server's capture do not go together.",
                "predicts": stack,
            },
        ],
        "fixes": [{"id": "events", "arm_id": "events", "says": "join the side stream by events"}],
    }


def _chain(code: int) -> list[Link]:
    def link(number: int, function: str, file: str, tag: str) -> Link:
        name, text = TEXTS[number]
        frame = Frame(file=file, line=71, function=function, tag=tag)
        return Link(
            type="AcceleratorError", module="torch", code=number, name=name, text=f"CUDA error: {text}", frames=[frame]
        )

    root = link(code, "wait_stream", "capturebook/subjects/sparse_mla.py", "subject")
    return [link(901, "capture_end", "torch/cuda/graphs.py", "torch"), root]


class Clock:
    """Start and end stamps of records, one after the other from START."""

    def __init__(self):
        self.now = START

    def take(self, seconds: float, lanes: int = 3) -> dict:
        started, self.now = self.now, self.now + timedelta(seconds=seconds / lanes)
        ended = started + timedelta(seconds=seconds)
        return dict(started=started.isoformat(), ended=ended.isoformat(), seconds=seconds)


def record(kind: str, clock: Clock, seconds: float = 2.0, a: Arm | None = None, seed: int = 0, **fields) -> Record:
    subject = fields.pop("subject", Subject(target=BUILD))
    name = probe_id(kind, subject, a, seed, payload=fields.get("payload", {}), role=fields.get("role", "arm"))
    log = fields.pop("log", f"logs/{name}.log")
    return Record(
        run="fake", probe=name, nonce="f00d", kind=kind, subject=subject, arm=a, seed=seed, log=log,
        provenance=PROVENANCE, **{"status": "pass", "stage": "done", **clock.take(seconds), **fields},
    )  # fmt: skip


def step(a: Arm, clock: Clock, code: int | None, notebook: str, **fields) -> Record:
    capturing = {"wait@capture": 1} if code == 905 else {"autotune@capture": 5} if a.warmup == "cold" and code else {}
    events = [Event(kind=k.removesuffix("@capture"), capturing=True, what="seen by a witness") for k in capturing]
    common = dict(a=a, notebook=notebook, counts=capturing, events=events, effective={"timeline": STAGES}, **fields)
    if code:
        return record("step", clock, 3.1, status="fail", stage="capture", chain=_chain(code), **common)
    check = Check(call="replay 2", output="out", error=0.0011, tolerance=0.003, ok=True)
    lost = a.compile == "default" and a.capture == "global" and a.graph_break == "none"
    caveats = ["overlap lost: the captured graph is one chain"] if lost else []
    return record("step", clock, 2.4, checks=[check], caveats=caveats, **common)


def step_records(clock: Clock) -> list[Record]:
    controls = [
        ("trivial", "pass", None), ("planted_item", "fail", 900), ("baked_scalar", "wrong", None)
    ]  # fmt: skip
    rows = []
    for name, status, code in controls:
        extra = dict(chain=_chain(code), stage="capture") if code else dict(stage="verify") if status == "wrong" else {}
        subject = Subject(target=f"capturebook.subjects.controls:{name}")
        a = Arm(variant="control")
        rows.append(
            record(
                "step",
                clock,
                1.2,
                a,
                status=status,
                subject=subject,
                role="control",
                notebook="02_graph_capture",
                **extra,
            )
        )
    for identifier in ARMS:
        a = arm(identifier)
        notebook = "02_graph_capture" if a.compile == "none" else "03_compile_check"
        rows.append(step(a, clock, outcome(a), notebook))
    story = arm("story")
    rows.append(step(story, clock, outcome(story), "03_compile_check", role="repeat", seed=1))
    rows.append(step(story, clock, outcome(story), "03_compile_check", role="unwatched", watched=False, seed=2))
    rows.append(step(story.changed(variant="twin"), clock, 905, "03_compile_check"))
    rows.append(step(arm("events"), clock, None, "03_compile_check", role="fix", seed=3))
    return rows


STAGES = [{"stage": "build", "s": 0.4}, {"stage": "warmup", "s": 1.0}, {"stage": "capture", "s": 2.2}]
LIMITS = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "sm_120": 101376}


def build_records(clock: Clock) -> list[Record]:
    rows = []
    for kernel, configs in {"simt_decode": (32, 64), "mma_decode": (32, 64, 128), "combine": (64,)}.items():
        for block in configs:
            for target, limit in LIMITS.items():
                shared = block * (1160 if kernel == "mma_decode" else 300)
                spills = 96 if kernel == "simt_decode" and block == 64 and target == "sm_80" else 0
                payload = dict(
                    target=target, kernel=kernel, config=f"BLOCK_N={block} num_warps=4", pinned=block == 64,
                    registers=128 + block, spills=spills, shared=shared, shared_limit=limit,
                    instructions={"mma": 48, "ldgsts": 12} if kernel == "mma_decode" else {}, occupancy=0.25,
                    fits=shared <= limit, triton="3.6.0", ptxas="12.9",
                )  # fmt: skip
                rows.append(record("build", clock, 1.1, notebook="01_kernel_build", payload=payload))
    return rows


def sweep_records(clock: Clock) -> list[Record]:
    rows = []
    for kernel, factor in {"simt": 2.6, "mma": 1.25}.items():
        for batch in (1, 8, 64):
            floor = 2.0 + batch * 0.9
            samples = [floor * factor * (1 + 0.01 * i) for i in range(5)]
            payload = dict(
                kernel=kernel, batch=batch, context=8192, bytes=batch * 4.4e6, flops=batch * 9e8, floor_us=floor,
                floor_source="published", median_us=samples[2], gbps=500.0, tflops=80.0, share=1 / factor,
                tokens_per_second=batch / samples[2] * 1e6,
            )  # fmt: skip
            rows.append(
                record("sweep", clock, 2.5, notebook="04_throughput_sweep", payload=payload, samples={"us": samples})
            )
    return rows


def notebook_records(skipped: dict[str, str]) -> list[Record]:
    rows = []
    for name, offset, seconds in NOTEBOOKS:
        started = START + timedelta(seconds=offset)
        status = "skipped" if name in skipped else "pass"
        payload = dict(notebook=name, executable="python3", conclusion=f"{name} concluded from its data")
        rows.append(
            Record(
                run="fake", probe=probe_id("notebook", None, None, 0, name=name), nonce="f00d", kind="notebook",
                notebook=name, status=status, reason=skipped.get(name, ""), stage="done", payload=payload,
                started=started.isoformat(), ended=(started + timedelta(seconds=seconds)).isoformat(), seconds=seconds,
            )
        )  # fmt: skip
    return rows


def write(path: Path, records: list[Record], parameters: dict | None = None, provenance: dict | None = None) -> Path:
    """A run folder at `path` holding `records`, the story's hypothesis and logs."""
    path.mkdir(parents=True)
    (path / "logs").mkdir()
    story = hypothesis()
    info = {
        "schema_version": 1, "run": path.name, "nonce": "f00d", "started": START.isoformat(),
        "ended": (START + timedelta(seconds=160)).isoformat(), "plan": [],
        "parameters": parameters or {"preset": "h200", "seed": 0},
        "question": {"arm": arm("story").model_dump(), "error": 905, "follow_compiled": False},
        "code": PROVENANCE["code"], "provenance": provenance or PROVENANCE, "invocations": [],
    }  # fmt: skip
    for name, data in {"run": info, "hypothesis": story, "environment": provenance or PROVENANCE}.items():
        (path / f"{name}.json").write_text(json.dumps(data))
    for r in records:
        append(path / "records.jsonl", r)
        if r.log:
            (path / r.log).write_text(f"stage {r.stage}\nstatus {r.status}\n")
    return path


def gpu_run(path: Path) -> Path:
    clock = Clock()
    records = [*build_records(clock), *step_records(clock), *sweep_records(clock), *notebook_records({})]
    return write(path, records)


def cpu_run(path: Path) -> Path:
    """The same plan on a machine without a GPU: builds run, captures are skipped with their reason."""
    clock, why = Clock(), "needs a CUDA GPU, and this machine has none"
    records = build_records(clock)
    for r in step_records(clock) + sweep_records(clock):
        records.append(
            r.model_copy(
                update=dict(
                    status="skipped", reason=why, stage="none", chain=[], samples={}, checks=[], counts={}, events=[]
                )
            )
        )
    uncaptured = Arm(**{**BASE, "compile": "default", "capture": "none", "variant": "twin", "batch": 2})
    records.append(record("step", clock, 9.0, uncaptured, notebook="03_compile_check", effective={"graph_breaks": 1}))
    for kernel in ("simt_decode", "mma_decode"):
        payload = dict(kernel=kernel, error=2e-7, tolerance=0.003)
        records.append(record("interpret", clock, 6.0, notebook="01_kernel_build", payload=payload))
    records += notebook_records({"04_throughput_sweep": why})
    here = {**PROVENANCE, "gpu": None, "driver": None, "torch": "2.13.0+cpu", "triton": "3.9.0"}
    return write(path, records, {"preset": "cpu", "seed": 0}, here)
