"""Runs that must stay open, and what the verdict has to say is missing."""

from capturebook.records import Arm

from .cases import COLD, COMPILED, CUBLAS, LONE, STORY, WARM, threads, trivial, twin
from .records import again, controls, early, fail, info, record, run_of, wrong

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
    "plain calls that do not agree with each other": (
        info(WARM),
        run_of(wrong(WARM, "warm-up 1", ok_after=False, effective={"deterministic": False, "random": False})),
        "undetermined",
        "the step is not deterministic",
    ),
    "a lone 901 without threads": (
        info(WARM),
        run_of(fail(WARM, 901, chain=[LONE])),
        "undetermined",
        "is it broken in a mode that other threads do not matter to?",
    ),
    "a lone 901 without threads, and thread_local passes": (
        info(WARM),
        run_of(fail(WARM, 901, chain=[LONE]), record(WARM.changed(capture="thread_local"))),
        "undetermined",
        "no thread besides",
    ),
    "a lone 901 without threads, and a trivial capture breaks too": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE]),
            fail(WARM.changed(capture="thread_local"), 901, chain=[LONE]),
            *trivial("global")[:1],
        ),
        "undetermined",
        "a trivial capture is broken as well",
    ),
    "a lone 901 with the witnesses off, without threads": (
        info(WARM),
        [*controls(), record(WARM), again(fail(WARM, 901, chain=[LONE]))],
        "undetermined",
        "repeats of the question's arm disagree",
    ),
    "thread_local fails as well": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]}),
            *threads(WARM, "global", bad=True),
            *threads(WARM, "thread_local", bad=True),
        ),
        "undetermined",
        "is a trivial capture broken by the step's threads in global mode?",
    ),
    "thread_local fails once in five": (
        info(WARM),
        run_of(
            fail(WARM, 901, chain=[LONE], effective={"threads": ["loader"]}),
            *threads(WARM, "global", bad=True),
            *threads(WARM, "thread_local", bad=False)[:4],
            threads(WARM, "thread_local", bad=True)[4],
            *trivial("global"),
        ),
        "undetermined",
        "not broken in thread_local mode",
    ),
    "a library's status in a warm arm, not tried again": (
        info(WARM),
        run_of(fail(WARM, None, CUBLAS)),
        "undetermined",
        "payload.frozen_advance_passes",
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
