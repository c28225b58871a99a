"""What a failed start-up points to: a class of attribution's, by the log alone, and the arm that would decide it.

A log has no controls, no twin and no repeat, so it points and never judges. Frames stand in for the witnesses.
"""

from dataclasses import dataclass

from ...attribution import evidence as ev
from ...attribution import symptoms as s
from ...attribution.recipes import RECIPES
from ...records import Arm, Event, Link, Record

_WITNESS = (
    # Part of a file's name, functions in it ((): any), and the witness that a probe would have had.
    ("triton/runtime/autotuner.py", (), "autotune"),
    ("triton/testing.py", ("do_bench", "do_bench_cudagraph"), "autotune"),
    ("_inductor/runtime/triton_heuristics.py", ("bench", "benchmark_all_configs", "autotune_to_one_config"),
     "inductor_autotune"),
    ("_inductor/select_algorithm.py", (), "inductor_autotune"),
    ("torch/_dynamo/convert_frame.py", (), "dynamo"),
    ("torch/_inductor/cudagraph_trees.py", (), "cudagraph_recording"),
)  # fmt: skip
_COMPILED = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/", "torchinductor_")


@dataclass(frozen=True)
class Pointing:
    """`classes` are attribution's (K1, B5, ...), none where the log fits none; `decide` is what would tell them apart,
    "" where nothing of ours would, as for a script's own ValueError.

    `memory`: the root is an exhausted GPU memory, the one cause for which the servers' own hints (a smaller memory
    fraction, smaller batches) are meant; they print them for every cause.
    """

    classes: tuple[str, ...]
    says: str
    decide: str
    memory: bool = False

    def as_dict(self) -> dict:
        advice = {name: RECIPES[name].says for name in self.classes}
        return {"classes": list(self.classes), "says": self.says, "decide": self.decide, "advice": advice}

    def todo(self) -> str:
        """What to do next, one line; "" where the log is of no failure that we know about."""
        if not self.decide:
            return ""
        classes = f" (points to {' or '.join(self.classes)})" if self.classes else ""
        return f"{self.says}{classes}; to decide: {self.decide}"


WITHOUT_COMPILE = "launch it once more without torch.compile (sglang: no --enable-torch-compile)"
WITHOUT_CAPTURE = "launch it once more without CUDA graphs (sglang: --disable-cuda-graph, vLLM: --enforce-eager)"
PROBE = "put the step into a Step and run `capturebook probe` on it"


def point(chain: list[Link]) -> Pointing | None:
    """What a chain from a start-up log points to. None for a log without a traceback."""
    if not chain:
        return None
    record, root = as_record(chain), chain[-1]
    where = f"{root.code} {root.name}" if root.code else root.type
    if root.code == 2:
        return Pointing((), f"{where}: the GPU's memory was exhausted", "a smaller memory fraction or batch", True)
    if not in_capture(chain):
        return Pointing((), f"{where}, outside any capture", WITHOUT_COMPILE if record.arm.compile != "none" else "")
    for holds, classes, says, decide in _TABLE:
        if holds(record):
            return Pointing(classes, f"{where}: {says}", decide)
    return Pointing((), f"{where} in the capture; no class fits by the log alone", WITHOUT_CAPTURE)


_TABLE = (
    (s.trees_in_capture, ("B3",), "Inductor's cudagraph trees run inside the server's capture", WITHOUT_COMPILE),
    (s.compile_in_capture, ("B1",), "torch.compile compiled inside the capture", WITHOUT_COMPILE),
    (s.users_tuning, ("K1",), "a Triton autotune benchmarked inside the capture", f"pin the tuning, or {PROBE}"),
    (s.inductors_tuning, ("B2",), "Inductor tuned inside the capture", WITHOUT_COMPILE),
    (s.library_status, ("B4",), "a CUDA library was first used inside the capture", "warm the library up before it"),
    (lambda r: s.wiring(r) and ev.compiled(r.arm), ("B5", "K3"),
     "streams are wired to work outside the capture, and torch.compile is in the stack", WITHOUT_COMPILE),
    (s.wiring, ("K3", "B5"), "streams are wired to work outside the capture; whether torch.compile dropped their "
     "fork the log does not say", WITHOUT_COMPILE),
    (s.refused, ("K2",), "a host synchronisation, pageable copy or generator call inside the capture", PROBE),
    (ev.lone_901, ("B6",), "the capture was broken by another thread's CUDA call",
     "stop metrics, profilers and NCCL watchdogs, or capture in thread_local mode"),
)  # fmt: skip


def in_capture(chain: list[Link]) -> bool:
    """Whether the failure lies in a CUDA graph capture: by a capture's code, by torch's capture on the stack, or by
    the server's words."""
    return any(
        900 <= (link.code or 0) <= 908
        or "cuda graph" in link.text.lower()
        and "captur" in link.text.lower()
        or any(f.file.endswith("torch/cuda/graphs.py") or "cuda_graph" in f.file for f in link.frames)
        for link in chain
    )


def as_record(chain: list[Link]) -> Record:
    """The chain as a failed step's record, so that attribution's symptoms read it."""
    frames = [frame for link in chain for frame in link.frames]
    compiled = any(part in frame.file for frame in frames for part in _COMPILED)
    events = [
        Event(kind=kind, capturing=True, what=f"{frame.function} on the stack", frame=frame,
              data={"users": True} if kind == "autotune" else {})
        for frame in frames for file, functions, kind in _WITNESS
        if frame.file.endswith(file) and (not functions or frame.function in functions)
    ]  # fmt: skip
    return Record(
        run="log", probe="log", nonce="log", kind="launch", status="fail", stage="capture", chain=chain,
        arm=Arm(compile="default" if compiled else "none"), events=events, started="", ended="",
        counts={"cudagraph_recording@capture": sum(e.kind == "cudagraph_recording" for e in events)},
    )  # fmt: skip
