"""Runs whose verdict was worked out by hand from the design's classes, and that verdict."""

from capturebook.records import Arm, Check, Event

from .records import early, fail, info, record, run_of, wrong

WARM = Arm()
COLD = Arm(warmup="kernel_cold")
COMPILED = Arm(compile="default")
STORY = Arm(kernel="mma", compile="default", overlap=True, sync="stream", graph_break="between")
TREES = Arm(compile="reduce-overhead")
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
COPY = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned."
CUBLAS = "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"


def twin(arm: Arm) -> Arm:
    return arm.changed(variant="twin")


def users(flag: bool) -> list[Event]:
    return [Event(kind="inductor_autotune", capturing=True, what="triton_", data={"users": flag, "configs": 3})]


def _threads(arm: Arm, mode: str, bad: bool) -> list:
    there = arm.changed(capture=mode)
    threads = {"effective": {"threads": ["loader"]}}
    make = lambda i: fail(there, 901, frames="none", chain=[LONE], role="repeat", tag=f"try {i}", **threads)  # noqa: E731
    good = lambda i: record(there, role="repeat", tag=f"try {i}", **threads)  # noqa: E731
    return [make(i) if bad else good(i) for i in range(5)]


LONE = fail(WARM, 901).chain[0]
UNDECLARED = [
    Check(call="warm-up 1", output="out", error=0.0, tolerance=1e-3, ok=True),
    Check(call="warm-up 1", output="input0 changed, undeclared", error=None, tolerance=0.0, ok=False),
]

DECIDED = {
    "survives": (info(WARM), run_of(record(WARM)), "none", None),
    "survives, then compiled": (
        info(WARM, follow_compiled=True),
        run_of(record(COMPILED), record(WARM)),
        "none",
        None,
    ),
    "fails uncompiled: the compiled arm is a hazard": (
        info(WARM, follow_compiled=True),
        run_of(fail(WARM, 900), fail(COMPILED, 900)),
        "kernel",
        "K2",
    ),
    "cold live autotune": (
        info(COLD),
        run_of(fail(COLD, 900, frames="autotune", seen=["jit", "autotune"]), record(WARM), record(twin(COLD))),
        "kernel",
        "K1",
    ),
    "autotune of a new key, warm": (
        info(WARM),
        run_of(fail(WARM, 900, frames="autotune", seen=["autotune"])),
        "kernel",
        "K1",
    ),
    "the user's autotune run by Inductor": (
        info(COMPILED),
        run_of(
            fail(COMPILED, 900, frames="inductor_tuning", events=users(True), counts={"inductor_autotune@capture": 1}),
            record(WARM),
            record(twin(COMPILED)),
        ),
        "kernel",
        "K1",
    ),
    "Inductor's own autotune": (
        info(COMPILED),
        run_of(
            fail(COMPILED, 900, frames="inductor_tuning", events=users(False), counts={"inductor_autotune@capture": 1})
        ),
        "stack",
        "B2",
    ),
    "item": (info(WARM), run_of(fail(WARM, 900)), "kernel", "K2"),
    "item, compiled too": (info(COMPILED), run_of(fail(COMPILED, 900), fail(WARM, 900)), "kernel", "K2"),
    "pageable copy": (
        info(WARM),
        run_of(fail(WARM, None, COPY)),
        "kernel",
        "K2",
    ),
    "waits on work from before the capture": (
        info(WARM),
        run_of(fail(WARM, 905, frames="wait_stream", seen=["wait"])),
        "kernel",
        "K3",
    ),
    "forgets the join": (info(WARM), run_of(fail(WARM, 904, frames="none")), "kernel", "K3"),
    "wired wrongly, compiled and not": (
        info(COMPILED),
        run_of(fail(COMPILED, 905, seen=["wait"]), fail(WARM, 905, seen=["wait"])),
        "kernel",
        "K3",
    ),
    "a Python error between fork and join": (
        info(WARM),
        run_of(fail(WARM, None, "bad shape", kind="ValueError", module="builtins")),
        "kernel",
        None,
    ),
    "no fake implementation": (
        info(COMPILED),
        run_of(
            early(COMPILED, "call to my_op", "Unsupported", "torch._dynamo.exc"), record(WARM), record(twin(COMPILED))
        ),
        "kernel",
        "K4",
    ),
    "undeclared change": (info(WARM), run_of(record(WARM, "wrong", checks=UNDECLARED)), "kernel", "K5"),
    "tuning runs on real buffers": (
        info(WARM),
        run_of(wrong(WARM, "warm-up 1", counts={"autotune": 8}), record(Arm(tuning="pinned"))),
        "kernel",
        "K5",
    ),
    "a baked scalar": (info(WARM), run_of(wrong(WARM, "replay 2", graph={"missing": []})), "kernel", "K6"),
    "an input freed before the replay": (
        info(WARM),
        run_of(fail(WARM, 700, stage="replay"), record(Arm(capture="none"))),
        "kernel",
        "K6",
    ),
    "launched on a stream outside the capture": (
        info(WARM),
        run_of(wrong(WARM, "replay 1", graph={"missing": ["my_kernel"]})),
        "kernel",
        "K3",
    ),
    "compile in capture, pattern init": (
        info(Arm(compile="default", warmup="cold")),
        run_of(
            fail(
                Arm(compile="default", warmup="cold"),
                None,
                COPY,
                frames="generated",
                seen=["dynamo"],
            )
        ),
        "stack",
        "B1",
    ),
    "recompile in capture": (
        info(COMPILED),
        run_of(fail(COMPILED, 900, frames="inductor_tuning", seen=["dynamo", "inductor_autotune"])),
        "stack",
        "B1",
    ),
    "trees record in the capture": (info(TREES), run_of(fail(TREES, 900, frames="trees")), "stack", "B3"),
    "trees and a compile in the capture": (
        info(TREES),
        run_of(fail(TREES, 900, frames="trees", seen=["dynamo"])),
        "stack",
        "B3",
    ),
    "trees replay in the capture": (
        info(TREES),
        run_of(fail(TREES, None, "Cannot prepare for replay during capturing stage.")),
        "stack",
        "B3",
    ),
    "a tree's output overwritten": (
        info(Arm(compile="reduce-overhead", capture="none")),
        run_of(
            early(
                Arm(compile="reduce-overhead", capture="none"),
                "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.",
                stage="verify",
            )
        ),
        "stack",
        "B3",
    ),
    "cuBLAS first used in the capture": (
        info(Arm(warmup="cold")),
        run_of(fail(Arm(warmup="cold"), None, CUBLAS), record(WARM)),
        "stack",
        "B4",
    ),
    "warmed in another thread": (
        info(Arm(thread="other")),
        run_of(fail(Arm(thread="other"), None, CUBLAS), record(WARM)),
        "stack",
        "B4",
    ),
    "the story": (
        info(STORY, 905),
        run_of(fail(STORY, 905, frames="wait_stream", seen=["wait"]), record(STORY.changed(compile="none"))),
        "stack",
        "B5",
    ),
    "the story, and a tuning that went through": (
        info(STORY, 905),
        run_of(
            fail(STORY, 905, frames="wait_stream", seen=["wait", "autotune"]), record(STORY.changed(compile="none"))
        ),
        "stack",
        "B5",
    ),
    "the graph breaks right after the fork": (
        info(STORY.changed(graph_break="after_fork")),
        run_of(
            fail(STORY.changed(graph_break="after_fork"), 900, frames="generated"),
            record(STORY.changed(graph_break="after_fork", compile="none")),
        ),
        "stack",
        "B5",
    ),
    "another thread": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]}),
            *_threads(WARM, "global", bad=True),
            *_threads(WARM, "thread_local", bad=False),
        ),
        "environment",
        "B6",
    ),
    "no caching allocator": (
        info(WARM),
        run_of(
            fail(WARM, 900, effective={"suspect_variables": NO_CACHE}),
            record(WARM, role="scrubbed", effective={"suspect_variables": {}}),
        ),
        "environment",
        "B7",
    ),
    "a setting that is not to blame": (
        info(WARM),
        run_of(
            fail(WARM, 900, effective={"suspect_variables": {"CUDA_LAUNCH_BLOCKING": "1"}}),
            fail(WARM, 900, role="scrubbed", effective={"suspect_variables": {}}),
        ),
        "kernel",
        "K2",
    ),
    "a variable of the arm's own": (
        info(Arm(env={"MY_LIBRARY_DEBUG": "1"})),
        run_of(fail(Arm(env={"MY_LIBRARY_DEBUG": "1"}), None, "odd", frames="none"), record(WARM)),
        "environment",
        "B7",
    ),
    "wrong only compiled": (
        info(COMPILED),
        run_of(wrong(COMPILED, "replay 1"), record(WARM), wrong(twin(COMPILED), "replay 1")),
        "stack",
        "B8",
    ),
    "the compiler fails on the twin too": (
        info(COMPILED),
        run_of(
            early(COMPILED, "LoweringException", "InductorError", "torch._inductor.exc"),
            record(WARM),
            early(twin(COMPILED), "LoweringException", "InductorError", "torch._inductor.exc"),
        ),
        "stack",
        "B9",
    ),
}
"""{name: (info, records, owner, class)}."""

OPEN = {
    "cold, and the twin fails too": (
        info(COLD),
        run_of(fail(COLD, 900, frames="autotune", seen=["autotune"]), record(WARM), fail(twin(COLD), 900)),
        "undetermined",
        "K1: the twin does not pass",
    ),
    "a segfault": (
        info(WARM),
        run_of(record(WARM, "fail", reason="died: signal 11 (SIGSEGV) at capture", exit={"code": None, "signal": 11})),
        "undetermined",
        "ended by itself inside the step (died: signal 11",
    ),
    "an exit of its own": (
        info(WARM),
        run_of(record(WARM, "fail", stage="warmup", reason="died: exit code 3 at warmup, without a result")),
        "undetermined",
        "ended by itself inside the step (died: exit code 3",
    ),
    "a hang": (
        info(WARM),
        run_of(record(WARM, "timeout", reason="no end within 60 s; it was at capture")),
        "undetermined",
        "no end within 60 s",
    ),
    "never started": (
        info(WARM),
        run_of(record(WARM, "not_run", stage="none", reason="probe server: ended with 1 before it was ready")),
        "not_run",
        "probe server: ended with 1",
    ),
    "skipped": (
        info(WARM),
        run_of(record(WARM, "skipped", stage="none", reason="needs a CUDA GPU, and this machine has none")),
        "not_run",
        "needs a CUDA GPU",
    ),
    "eager fails": (
        info(WARM),
        run_of(early(WARM, "shapes differ", "RuntimeError", stage="warmup")),
        "undetermined",
        "the eager step fails before any capture",
    ),
    "the reference is wrong": (
        info(WARM),
        run_of(
            wrong(WARM, "warm-up 1", ok_after=False, counts={"autotune": 8}),
            record(Arm(tuning="pinned")),
            wrong(Arm(variant="twin", capture="none"), "call 1", ok_after=False),
        ),
        "undetermined",
        "the reference is wrong",
    ),
    "a lone 901 without threads": (
        info(WARM),
        run_of(fail(WARM, 901, chain=[LONE])),
        "undetermined",
        "no thread besides",
    ),
    "thread_local fails as well": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]}),
            *_threads(WARM, "global", bad=True),
            *_threads(WARM, "thread_local", bad=True),
        ),
        "undetermined",
        "thread test: thread_local did not tell",
    ),
    "thread_local fails once in five": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]}),
            *_threads(WARM, "global", bad=True),
            *_threads(WARM, "thread_local", bad=False)[:4],
            _threads(WARM, "thread_local", bad=True)[4],
        ),
        "undetermined",
        "thread test: thread_local did not tell",
    ),
    "the compiler fails on the step alone": (
        info(COMPILED),
        run_of(early(COMPILED, "boom", "InductorError", "torch._inductor.exc"), record(WARM), record(twin(COMPILED))),
        "undetermined",
        "not on its twin",
    ),
    "a code that no rule knows": (
        info(WARM),
        run_of(fail(WARM, 719)),
        "undetermined",
        "no class fits: 719 cudaErrorLaunchFailure at capture",
    ),
    "wrong on replay, graph not compared": (
        info(WARM),
        run_of(wrong(WARM, "replay 2")),
        "undetermined",
        "kernels of the graph against an eager run",
    ),
    "other error uncompiled": (
        info(STORY),
        run_of(fail(STORY, 905, seen=["wait"]), fail(STORY.changed(compile="none"), 900)),
        "undetermined",
        "no class fits: 905",
    ),
}
"""{name: (info, records, owner, a part of what `open` must say)}."""
