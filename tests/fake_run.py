"""A made-up run folder for the report's tests: shaped like a run on an H200, with outcomes invented by `outcome` below.

Nothing here was measured. It follows the table of the story's step (compile x capture x side stream x graph break)
so that the report meets realistic records; genuine ones are in outputs/h200.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from capturebook.attribution import load_hypothesis
from capturebook.records import Arm, Check, Event, Frame, Link, Record, Subject, append, probe_id
from evidence.records import READ_BACK

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
BUILD = "capturebook.subjects.sparse_mla:build"
TEXTS = {
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    905: (
        "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
    ),
}
STORY = load_hypothesis("story")
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
    "no_gpu": "",
    "torch_cuda": "13.0",
    "driver_cuda": "13.0",
    "code": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
}


def arm(identifier: str) -> Arm:
    return STORY.arm(identifier)


def outcome(a: Arm) -> int | None:
    """The CUDA error code that this made-up GPU answers an arm with, or None where it passes."""
    cold = a.warmup == "kernel_cold"
    if a.capture == "none":
        return None
    if a.compile == "none":
        return 900 if cold and a.tuning == "live" and a.variant == "step" else None
    if cold or a.compile == "reduce-overhead":
        return 900
    if a.overlap and a.compile != "eager":
        if a.graph_break == "between" and a.sync == "stream":
            return 905
        if a.graph_break == "after_fork":
            return 900
    return None


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
    if kind == "step":
        fields.setdefault("effective", READ_BACK)
    return Record(
        run="fake", probe=name, nonce="f00d", kind=kind, subject=subject, arm=a, seed=seed, log=log,
        provenance=PROVENANCE, **{"status": "pass", "stage": "done", **clock.take(seconds), **fields},
    )  # fmt: skip


def step(a: Arm, clock: Clock, code: int | None, notebook: str, **fields) -> Record:
    capturing = (
        {"wait@capture": 1} if code == 905 else {"autotune@capture": 5} if a.warmup == "kernel_cold" and code else {}
    )
    events = [Event(kind=k.removesuffix("@capture"), capturing=True, what="seen by a witness") for k in capturing]
    common = dict(
        a=a, notebook=notebook, counts=capturing, events=events, effective={**READ_BACK, "timeline": STAGES}, **fields
    )
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
    for _, a in STORY.probes():
        rows.append(step(a, clock, outcome(a), "02_graph_capture" if a.compile == "none" else "03_compile_check"))
    seen = arm("seen")
    rows.append(step(seen, clock, outcome(seen), "03_compile_check", role="repeat", seed=1))
    rows.append(step(seen, clock, outcome(seen), "03_compile_check", role="unwatched", watched=False, seed=2))
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
                entry = dict(
                    kernel=kernel, target=target, index=0, config=f"BLOCK_N={block} num_warps=4", pinned=block == 64
                )
                figures = dict(
                    registers=128 + block, spills=spills, shared=shared, shared_limit=limit,
                    instructions={"HMMA": 48, "LDGSTS": 12, "total": 900} if kernel == "mma_decode" else {"total": 700},
                    occupancy=0.25, fits=shared <= limit, triton="3.6.0", ptxas="12.9",
                )  # fmt: skip
                about = Subject(target="capturebook.kernels.sparse_mla.examples:examples", options=entry)
                common = dict(notebook="01_kernel_build", subject=about, payload={**entry, **figures})
                rows.append(record("build", clock, 1.1, **common))
    return rows


def sweep_records(clock: Clock) -> list[Record]:
    rows = []
    for batch in (1, 8, 64):
        floor = 2.0 + batch * 0.9
        variants = {name: {"kernel": name, "tuning": "live"} for name in ("simt", "mma")}
        options = dict(batch=batch, context=8192, heads=64, variants=variants)
        samples = {n: [floor * k * (1 + 0.01 * i) for i in range(5)] for n, k in {"simt": 2.6, "mma": 1.25}.items()}
        timed = {
            name: dict(
                median_us=us[2], gbps=500.0, tflops=80.0, share=floor / us[2], tokens_per_second=batch / us[2] * 1e6
            )
            for name, us in samples.items()
        }
        payload = dict(floor_us=floor, floor_bound="bytes", floor_source="preset h200", variants=timed)
        about = Subject(target="capturebook.kernels.sparse_mla:decode", options=options)
        common = dict(notebook="04_throughput_sweep", subject=about, payload=payload, samples=samples)
        rows.append(record("sweep", clock, 2.5, **common))
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
    info = {
        "schema_version": 1, "run": path.name, "nonce": "f00d", "started": START.isoformat(),
        "ended": (START + timedelta(seconds=160)).isoformat(), "plan": [],
        "parameters": parameters or {"preset": "h200", "seed": 0},
        "question": STORY.asks().model_dump(),
        "code": PROVENANCE["code"], "provenance": provenance or PROVENANCE, "invocations": [],
    }  # fmt: skip
    for name, data in {"run": info, "hypothesis": STORY.model_dump(), "environment": provenance or PROVENANCE}.items():
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
    uncaptured = Arm(compile="default", capture="none", variant="twin", graph_break="between", batch=2)
    records.append(record("trace", clock, 9.0, uncaptured, notebook="03_compile_check", effective={"graph_breaks": 1}))
    for kernel in ("simt_decode", "mma_decode"):
        payload = dict(kernel=kernel, batch=2, heads=16, error=2e-7, tolerance=0.003)
        about = Subject(target="capturebook.kernels.sparse_mla:decode", options={"kernel": kernel, "batch": 2})
        records.append(record("interpret", clock, 6.0, notebook="01_kernel_build", subject=about, payload=payload))
    records += notebook_records({"04_throughput_sweep": why})
    here = {
        **PROVENANCE,
        "gpu": None,
        "no_gpu": "no NVIDIA driver",
        "driver": None,
        "torch": "2.13.0+cpu",
        "triton": "3.9.0",
    }
    return write(path, records, {"preset": "cpu", "seed": 0}, here)
