"""Runs whose verdict was worked out by hand from the design's classes, and that verdict."""

from capturebook.records import Arm, Check, Event

from .records import SUBJECT_FRAME, again, controls, early, fail, info, record, run_of, wrong

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


def threads(arm: Arm, mode: str, bad: bool) -> list:
    there = arm.changed(capture=mode)
    threads = {"effective": {"threads": ["loader"]}}
    make = lambda i: fail(there, 901, frames="none", chain=[LONE], role="repeat", tag=f"try {i}", **threads)  # noqa: E731
    good = lambda i: record(there, role="repeat", tag=f"try {i}", **threads)  # noqa: E731
    return [make(i) if bad else good(i) for i in range(5)]


LONE = fail(WARM, 901).chain[0]


def trivial(*broken: str) -> list:
    """A trivial operation captured beside the step's threads, in these modes broken and in the others not."""
    made = []
    for mode in ("global", "thread_local", "relaxed"):
        seen = {"role": "repeat", "tag": "trivial", "payload": {"trivial": True}}
        there = Arm(capture=mode)
        made.append(fail(there, 901, chain=[LONE], **seen) if mode in broken else record(there, **seen))
    return made


WAITS = Event(kind="sync", capturing=False, what="a copy of pageable memory", frame=SUBJECT_FRAME)
WRITES = {"mine.op.default": "test_schema: Argument x is not defined as mutable but was mutated"}
OTHER_DTYPE = {"opcheck": {"mine.op.default": "test_faketensor: Dtypes torch.float32 and torch.bfloat16 are not equal"}}
OTHER_STRIDES = {"opcheck": {"mine.op.default": "test_faketensor: Mismatched strides"}}
UNCOMPILED = Arm(env={"TORCH_COMPILE_DISABLE": "1"})
ITSELF = {"seen": ["wait"], "counts": {"dynamo": 1, "wait@capture": 1}}
"""What a record shows of a step that calls torch.compile in an arm that compiles nothing."""
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
    "a line that waits, refused in words that nobody knows": (
        info(WARM),
        run_of(fail(WARM, None, "not while capturing", events=[WAITS], counts={"sync": 1})),
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
    "cuBLAS first needed on a path that advance chose": (
        info(WARM),
        run_of(fail(WARM, None, CUBLAS, payload={"frozen_advance_passes": True})),
        "stack",
        "B4",
    ),
    "another thread that no mode helps against": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["metrics"]}),
            *threads(WARM, "global", bad=True),
            *threads(WARM, "thread_local", bad=True),
            *trivial("global", "thread_local", "relaxed"),
        ),
        "environment",
        "B6",
    ),
    "an operator writes what it does not declare, seen only compiled": (
        info(COMPILED),
        run_of(
            wrong(COMPILED, "warm-up 1", ok_after=False, effective={"opcheck": WRITES}),
            record(WARM),
            record(twin(COMPILED)),
            record(Arm(variant="twin", capture="none")),
        ),
        "kernel",
        "K5",
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
            *threads(WARM, "global", bad=True),
            *threads(WARM, "thread_local", bad=False),
        ),
        "environment",
        "B6",
    ),
    "it waits in the capture, and the error is swallowed": (
        info(WARM),
        run_of(fail(WARM, 901, chain=[LONE], seen=["sync"])),
        "kernel",
        "K2",
    ),
    "a call that nobody sees breaks the capture, in every mode": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE]),
            fail(WARM.changed(capture="thread_local"), 901, chain=[LONE]),
            *trivial()[:1],
        ),
        "kernel",
        "K2",
    ),
    "an operator whose fake says other strides": (
        info(COMPILED),
        run_of(
            early(COMPILED, "expected size 16==16, stride 1==128 at dim=0", "AssertionError", effective=OTHER_STRIDES),
            record(WARM),
            record(twin(COMPILED)),
        ),
        "kernel",
        "K4",
    ),
    "an operator whose fake says another dtype": (
        info(COMPILED),
        run_of(
            wrong(COMPILED, "warm-up 1", ok_after=False, effective=OTHER_DTYPE),
            record(WARM),
            record(twin(COMPILED)),
        ),
        "kernel",
        "K4",
    ),
    "another thread, that spared the watched capture": (
        info(WARM),
        [
            *controls(),
            record(WARM, effective={"threads": ["loader"]}),
            again(fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]})),
            *threads(WARM, "global", bad=True),
            *threads(WARM, "thread_local", bad=False),
        ],
        "environment",
        "B6",
    ),
    "a step that compiles itself and loses its streams": (
        info(WARM),
        run_of(fail(WARM, 905, frames="wait_stream", **ITSELF), record(UNCOMPILED)),
        "stack",
        "B5",
    ),
    "a step that compiles itself and is wired wrongly all the same": (
        info(WARM),
        run_of(fail(WARM, 905, frames="wait_stream", **ITSELF), fail(UNCOMPILED, 905, frames="wait_stream")),
        "kernel",
        "K3",
    ),
    "a step that compiles itself, with trees": (
        info(WARM),
        run_of(fail(WARM, 900, frames="trees", counts={"dynamo": 1})),
        "stack",
        "B3",
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
