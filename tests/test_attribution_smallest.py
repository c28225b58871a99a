"""The smallest failing set: planted oracles, monotone and not, and what an H200 answered for the story's step."""

import itertools
import random

import pytest

from capturebook.attribution import explain, judge, load_hypothesis, plan
from capturebook.attribution.smallest import arm_of, plain_values, search
from capturebook.records import Arm
from evidence import h200
from evidence.cases import COLD, STORY, WARM
from evidence.records import controls, early, fail, info, record, run_of, wrong

LETTERS = frozenset("abcdefgh")


def run_search(factors, fails, answer=None):
    """Answer what the search wants until it is over; the result, all sets that were asked for, and the rounds."""
    told, rounds = {}, 0
    while True:
        found = search(factors, told.get)
        if not found.wanted:
            return found, set(told), rounds
        assert not set(found.wanted) & set(told), "asked twice"
        rounds += 1
        told |= {kept: answer(kept) if answer else ("same" if fails(kept) else "other") for kept in found.wanted}


@pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
def test_a_conjunction_is_found_in_two_looks_at_each_factor(size):
    wanted = frozenset(sorted(LETTERS)[:size])
    found, asked, rounds = run_search(LETTERS, lambda kept: wanted <= kept)
    assert found.needed == wanted and found.minimal
    assert len(asked) <= 2 * len(LETTERS) + 1 and rounds <= 3


def test_either_of_two_causes_is_a_smallest_set():
    causes = [{"a", "b"}, {"c", "d", "e"}]
    found, _, _ = run_search(LETTERS, lambda kept: any(cause <= kept for cause in causes))
    assert set(found.needed) in causes and found.minimal


@pytest.mark.parametrize("seed", range(40))
def test_any_oracle_gives_a_set_that_fails_and_cannot_lose_one_factor(seed):
    """Random answers for all 64 sets: nothing monotone about them."""
    draw = random.Random(seed)
    factors = frozenset("abcdef")
    sets = [frozenset(kept) for size in range(7) for kept in itertools.combinations(sorted(factors), size)]
    table = {kept: draw.random() < 0.5 for kept in sets} | {factors: True}
    found, asked, _ = run_search(factors, table.get)
    assert table[found.needed] and found.minimal
    assert not any(table[found.needed - {name}] for name in found.needed)
    assert len(asked) < len(sets)


def test_what_has_no_result_is_said_and_not_taken_for_a_pass():
    def answer(kept):
        return "same" if {"a", "b"} <= kept else "unclear" if "a" in kept else "other"

    found, _, _ = run_search(frozenset("abc"), None, answer)
    assert (found.needed, found.unclear, found.minimal) == (frozenset("ab"), frozenset("b"), False)


def test_a_plain_arm_leaves_alone_what_the_subject_decides():
    assert plain_values(fail(WARM, 900), {}) == {"capture": "none"}
    made = fail(Arm(compile="default", fullgraph=True, env={"A": "1"}, overlap=False, sync="event"), 900)
    assert plain_values(made, {}) == {"capture": "none", "compile": "none", "fullgraph": False, "env:A": None}
    without = arm_of(made.arm, plain_values(made, {}), frozenset({"capture", "fullgraph"}), {})
    assert without == Arm(overlap=False, sync="event"), "fullgraph means nothing uncompiled"


def pursue(run, answer):
    """Plan with the search until nothing is asked for: the verdict, the records, the rounds."""
    records, rounds = [], 0
    while probes := plan.next_probes(run, records, with_smallest=True):
        records += [answer(probe) for probe in probes]
        rounds += 1
        assert rounds < 12
    return judge(run, {}, records), records, rounds


def test_the_story_takes_all_five_and_the_autotune_has_no_part():
    def answer(probe):
        made = h200.answer(probe)
        return made.model_copy(update={"counts": {**made.counts, "autotune": 4}}) if probe.role != "control" else made

    verdict, records, _ = pursue(info(STORY, 905), answer)
    found = verdict.smallest
    assert found["factors"] == {
        "capture": "global", "compile": "default", "graph_break": "between", "overlap": True, "sync": "stream",
    }  # fmt: skip
    assert (found["no_part"], found["minimal"]) == ({"tuning": "live"}, True)
    assert found["sentence"] == (
        "905 needs capture=global, compile=default, graph_break=between, overlap=true and sync=stream, all together: "
        "with any one of them made plain (capture=none, compile=none, graph_break=none, overlap=false and sync=event) "
        "this failure does not come, and tuning=live has no part."
    )
    assert set(found["records"]) <= {r.probe for r in records}
    assert len({r.probe for r in records}) == len(records), "a probe was run twice"
    assert (verdict.owner, verdict.class_, verdict.fixed) == ("stack", "B5", "fixed")


def test_cold_autotune_takes_cold_live_and_the_capture():
    verdict, _, _ = pursue(info(COLD), h200.answer)
    assert verdict.smallest["factors"] == {"capture": "global", "tuning": "live", "warmup": "kernel_cold"}
    assert (verdict.owner, verdict.class_) == ("kernel", "K1")


def test_a_step_that_fails_by_itself_takes_nothing():
    def answer(probe):
        if probe.role == "control":
            return h200.answer(probe)
        return fail(probe.arm, None, "broken", role=probe.role, probe=probe.id, watched=probe.watched, stage="warmup")

    verdict, _, _ = pursue(info(WARM.changed(compile="default")), answer)
    assert verdict.smallest["factors"] == {} and verdict.smallest["minimal"]
    assert "none of capture=global and compile=default" in verdict.smallest["sentence"]


def test_a_wrong_result_is_searched_like_an_error():
    def answer(probe):
        broken = probe.role != "control" and probe.arm.capture != "none"
        made = {"role": probe.role, "probe": probe.id, "watched": probe.watched, "graph": {"missing": []}}
        return wrong(probe.arm, "replay 2", **made) if broken else h200.answer(probe)

    verdict, _, _ = pursue(info(WARM), answer)
    assert (verdict.owner, verdict.class_) == ("kernel", "K6")
    assert verdict.smallest["sentence"] == (
        "A wrong result needs capture=global: with it made plain (capture=none) this failure does not come."
    )


def test_too_few_arms_tell_nothing():
    records = [*controls(), fail(STORY, 905, frames="wait_stream"), record(STORY.changed(compile="none"))]
    assert judge(info(STORY), {}, records).smallest is None


def story_run():
    _, records, _ = pursue(info(STORY, 905), h200.answer)
    return info(STORY, 905), records


def test_neither_the_set_nor_the_gain_depends_on_the_order_of_records():
    run, records = story_run()
    first = judge(run, {}, records)
    assert first.smallest and first.gain
    for seed in range(5):
        shuffled = records.copy()
        random.Random(seed).shuffle(shuffled)
        assert judge(run, {}, shuffled) == first


def test_a_record_less_never_gives_a_smaller_set():
    run, records = story_run()
    whole = judge(run, {}, records).smallest
    for gone in records:
        found = judge(run, {}, [r for r in records if r.probe != gone.probe]).smallest
        if gone.probe in whole["records"]:
            assert found is None, f"{gone.probe} shows a part of it"
        elif found is not None:
            assert found["factors"] == whole["factors"]


def test_arms_whose_records_disagree_are_unclear():
    run, records = story_run()
    passing = next(r for r in records if r.arm == STORY.changed(capture="none"))
    other = fail(passing.arm, None, "sometimes", stage="warmup", role="repeat")
    found = judge(run, {}, [*records, other]).smallest
    assert not found["minimal"] and found["unclear"] == ["capture"]
    assert "(not shown for capture)" in found["sentence"]


def test_without_controls_nothing_is_said_about_the_set():
    run, records = story_run()
    assert judge(run, {}, [r for r in records if r.role != "control"]).smallest is None


def test_a_variable_that_the_run_sets_is_a_factor_and_the_step_s_own_is_not():
    variables = {"TORCHINDUCTOR_CUDAGRAPHS": "1", "DECODE_SCALE": "3"}
    compiled = Arm(compile="default")
    records = run_of(
        fail(compiled, 900, frames="trees"),
        record(WARM),
        record(compiled.changed(capture="none")),
        record(compiled.changed(env={"TORCHINDUCTOR_CUDAGRAPHS": "0"}), role="fix"),
    )
    found = judge(info(compiled, env=variables), {}, records).smallest
    assert found["factors"] == {"capture": "global", "compile": "default", "env:TORCHINDUCTOR_CUDAGRAPHS": "1"}
    assert found["sentence"] == (
        "900 needs capture=global, compile=default and TORCHINDUCTOR_CUDAGRAPHS=1, all together: "
        "with any one of them made plain (capture=none, compile=none and TORCHINDUCTOR_CUDAGRAPHS=unset) this failure "
        "does not come."
    )
    assert judge(info(compiled, env=variables), {}, records[:-1]).smallest is None


FUSED = Arm(compile="default", options={"glue": "fused", "tp": 4})


def planted(probe):
    """The fused glue fails in a capture, compiled or not, and nothing else does."""
    made = {"role": probe.role, "probe": probe.id, "watched": probe.watched}
    if probe.role == "control":
        return h200.answer(probe)
    if probe.arm.options.get("glue") == "fused" and probe.arm.capture != "none":
        return fail(probe.arm, 906, **made)
    return record(probe.arm, **made)


def test_a_keyword_of_build_is_a_factor_that_a_failure_may_need():
    verdict, records, _ = pursue(info(FUSED), planted)
    found = verdict.smallest
    assert found["factors"] == {"capture": "global", "option.glue": "fused"} and found["minimal"]
    assert found["no_part"] == {"compile": "default", "option.tp": 4}
    assert found["sentence"] == (
        "906 needs capture=global and option.glue=fused, all together: with any one of them made plain (capture=none "
        "and option.glue=unset) this failure does not come, and compile=default and option.tp=4 have no part."
    )
    assert Arm(compile="default", options={"tp": 4}) in [r.arm for r in records], "left to the subject's own default"
    said = explain(verdict, load_hypothesis("own_kernel").model_dump(), records)
    assert "906 stays with each of these changes, made alone: compile=none, option.tp=(unset)." in said


def test_without_a_keyword_that_build_needs_nothing_is_seen():
    def answer(probe):
        if probe.role == "control" or "tp" in probe.arm.options:
            return planted(probe)
        made = {"role": probe.role, "probe": probe.id, "watched": probe.watched}
        return early(probe.arm, "options: build needs 'tp'; given: glue", kind="SubjectError", stage="build", **made)

    found = pursue(info(FUSED), answer)[0].smallest
    assert found["factors"] == {"capture": "global", "option.glue": "fused", "option.tp": 4}
    assert (found["minimal"], found["unclear"]) == (False, ["option.tp"])


def test_the_gain_is_beside_the_nearest_arm_in_keywords_of_build_too():
    asked, beside = COLD.changed(options={"glue": "fused", "tp": 4}), []

    def answer(probe):
        beside.extend([probe.args["beside"]] if probe.kind == "gain" else [])
        if probe.role == "control" or probe.arm.options.get("glue") == "fused":
            return h200.answer(probe)
        return record(probe.arm, role=probe.role, probe=probe.id, watched=probe.watched)

    verdict, _, _ = pursue(info(asked), answer)
    assert (verdict.class_, verdict.fixed) == ("K1", "fixed")
    assert beside == [asked.changed(options={"tp": 4}).model_dump()]
    assert verdict.gain["baseline"] == "option.glue=(unset)"
    assert verdict.smallest["factors"] == {
        "capture": "global", "option.glue": "fused", "tuning": "live", "warmup": "kernel_cold",
    }  # fmt: skip
