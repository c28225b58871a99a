"""Planning: from an empty run to a verdict, by probes that a stand-in answers as an H200 was seen to."""

import sys

import pytest

from capturebook.attribution import judge, plan
from capturebook.records import Arm
from evidence import h200
from evidence.cases import COLD, DECIDED, STORY, WARM
from evidence.records import fail, info, record


def run_to_the_end(run: dict, answer):
    """Plan, answer, plan again until nothing is asked for. Returns the verdict, the records and the rounds."""
    records, rounds = [], []
    for _ in range(12):
        probes = plan.next_probes(run, records)
        if not probes:
            return judge(run, {}, records), records, rounds
        rounds.append(probes)
        records += [answer(probe) for probe in probes]
    pytest.fail("the plan does not end")


def test_story_is_decided_and_its_fix_run():
    verdict, records, rounds = run_to_the_end(info(STORY, 905), h200.answer)
    assert (verdict.owner, verdict.class_, verdict.root["code"]) == ("stack", "B5", 905)
    assert verdict.fixed == "fixed" and verdict.fix.endswith("Run here: sync=event passes.")
    assert verdict.gain["fixed"] == "sync=event" and verdict.gain["baseline"] == "compile=none"
    assert len(records) <= 12
    first = [(p.role, p.watched, p.arm.variant) for p in rounds[0]]
    assert first == [("control", True, "control")] * 3 + [("arm", True, "step"), ("unwatched", False, "step")]
    assert [p.arm for p in rounds[1]] == [STORY.changed(compile="none")]


def test_a_sound_step_takes_the_question_and_its_compiled_twin_only():
    verdict, records, _ = run_to_the_end(info(WARM, follow_compiled=True), h200.answer)
    assert verdict.owner == "none"
    assert Arm(**verdict.question["arm"]).compile == "default"
    assert len(records) == 7


def test_cold_autotune_asks_for_the_plain_arm_and_the_twin():
    verdict, records, rounds = run_to_the_end(info(COLD), h200.answer)
    assert (verdict.owner, verdict.class_, verdict.fixed) == ("kernel", "K1", "fixed")
    assert [p.arm for r in rounds[1:3] for p in r] == [WARM, COLD.changed(variant="twin")]


def test_a_failure_of_the_default_question_still_looks_at_the_compiled_arm():
    def answer(probe):
        made = h200.answer(probe)
        broken = probe.role != "control" and probe.arm.capture != "none"
        return fail(probe.arm, 900, role=probe.role, probe=probe.id, watched=probe.watched) if broken else made

    verdict, _, _ = run_to_the_end(info(WARM, follow_compiled=True), answer)
    assert (verdict.owner, verdict.class_, verdict.fixed) == ("kernel", "K2", "needs a code change")
    assert [h["arm"]["compile"] for h in verdict.hazards] == ["default"]


def test_a_setting_is_scrubbed_from_arm_and_parameters():
    arm = Arm(env={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "KEEP": "1"})
    asked = []

    def answer(probe):
        asked.append(probe)
        if probe.role == "control":
            return h200.answer(probe)
        if probe.role == "scrubbed":
            return record(probe.arm, role="scrubbed", probe=probe.id, effective={"suspect_variables": {}})
        return fail(probe.arm, 900, role=probe.role, probe=probe.id, watched=probe.watched)

    verdict, _, _ = run_to_the_end(info(arm, env={"CUDA_LAUNCH_BLOCKING": "1"}), answer)
    assert (verdict.owner, verdict.class_, verdict.fixed) == ("environment", "B7", "fixed")
    scrubbed = next(p for p in asked if p.role == "scrubbed")
    assert scrubbed.environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == ""
    assert scrubbed.environment["KEEP"] == "1"
    assert scrubbed.arm.env == {"KEEP": "1"}


def test_a_variable_of_the_run_is_undone_in_the_process_that_runs_the_fix():
    """The arm's variables go over the run's: the fix's server is started with 0 where the others' have 1."""
    asked = []

    def answer(probe):
        asked.append(probe)
        if probe.role == "control":
            return h200.answer(probe)
        trees = probe.arm.compile != "none" and probe.environment.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
        common = {"role": probe.role, "probe": probe.id, "watched": probe.watched}
        return fail(probe.arm, 900, frames="trees", **common) if trees else record(probe.arm, **common)

    run = info(Arm(compile="default"), env={"TORCHINDUCTOR_CUDAGRAPHS": "1"})
    verdict, _, _ = run_to_the_end(run, answer)
    assert (verdict.class_, verdict.fixed) == ("B3", "fixed")
    assert {p.environment["TORCHINDUCTOR_CUDAGRAPHS"] for p in asked if p.role == "arm"} == {"1"}
    assert {p.environment["TORCHINDUCTOR_CUDAGRAPHS"] for p in asked if p.role == "fix"} == {"0"}


def test_a_lone_901_gets_the_thread_test():
    lone = DECIDED["another thread"][1][3].chain

    def answer(probe):
        if probe.role == "control":
            return h200.answer(probe)
        threads = {
            "effective": {"threads": ["loader"]},
            "role": probe.role,
            "probe": probe.id,
            "watched": probe.watched,
        }
        return fail(probe.arm, chain=lone, **threads) if probe.arm.capture == "global" else record(probe.arm, **threads)

    verdict, records, rounds = run_to_the_end(info(WARM), answer)
    assert (verdict.owner, verdict.class_, verdict.fixed) == ("environment", "B6", "fixed")
    assert [len(r) for r in rounds[1:3]] == [5, 5]


@pytest.mark.parametrize("status", ["not_run", "skipped", "timeout"])
def test_what_does_not_run_is_not_asked_for_again(status):
    def answer(probe):
        return record(
            probe.arm, status, role=probe.role, subject=probe.subject, probe=probe.id, watched=probe.watched,
            reason="planted", stage="none",
        )  # fmt: skip

    verdict, records, rounds = run_to_the_end(info(STORY), answer)
    assert verdict.owner == "not_run" and len(rounds) == 1 and len(records) == 5


def test_planned_arms_and_next_probes_are_the_same_probes():
    run = info(STORY)
    first = plan.next_probes(run, [])
    assert plan.arm_probe(STORY, run["parameters"]).id in {p.id for p in first}
    assert {p.id for p in plan.controls(run["parameters"])} <= {p.id for p in first}


def test_the_built_in_subject_takes_its_heads():
    given = {**info(STORY)["parameters"], "subject": "capturebook.subjects.sparse_mla:build", "heads": 16}
    assert plan.subject(given).options == {"heads": 16}
    assert plan.subject({**given, "options": {"heads": 8}}).options == {"heads": 8}
    assert plan.subject({**given, "subject": "mine.py:build"}).options == {}


def test_nothing_here_imports_torch():
    import subprocess

    code = "import sys, capturebook.attribution.plan; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
