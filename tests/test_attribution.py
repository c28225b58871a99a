"""Verdicts from evidence written by hand: every class; and altered evidence, which must not give a wrong owner."""

import json
import random

import pytest

from capturebook.attribution import costs, judge
from capturebook.attribution.recipes import RECIPES
from capturebook.records import Arm, Record
from evidence.cases import COMPILED, DECIDED, STORY, WARM
from evidence.open_cases import OPEN
from evidence.records import NONCE, controls, early, fail, info, link, record, run_of

PLANTED = {"reason": "planted", "stage": "none"}


def verdict(run: dict, records: list[Record]):
    """The judge reads JSON, so it gets what JSON leaves."""
    return judge(json.loads(json.dumps(run)), {}, [Record.from_line(r.to_line()) for r in records])


@pytest.mark.parametrize("name", DECIDED)
def test_decided(name):
    run, records, owner, cls = DECIDED[name]
    found = verdict(run, records)
    assert (found.owner, found.class_) == (owner, cls), found.sentence
    assert found.open == []
    assert (found.root is None) == (owner == "none")


@pytest.mark.parametrize("name", OPEN)
def test_open(name):
    run, records, owner, said = OPEN[name]
    found = verdict(run, records)
    assert (found.owner, found.class_) == (owner, None), found.sentence
    assert said in " | ".join(found.open)
    assert found.records == []


@pytest.mark.parametrize("name", [*DECIDED, *OPEN])
def test_order_does_not_matter(name):
    run, records, *_ = (DECIDED | OPEN)[name]
    first = verdict(run, records)
    for seed in range(3):
        shuffled = records.copy()
        random.Random(seed).shuffle(shuffled)
        assert verdict(run, shuffled) == first
    assert verdict(run, records + records) == first


@pytest.mark.parametrize("name", DECIDED)
def test_every_deciding_record_is_needed(name):
    run, records, *_ = DECIDED[name]
    whole = verdict(run, records)
    assert whole.records
    for probe in whole.records:
        less = verdict(run, [r for r in records if r.probe != probe])
        assert less.owner in ("undetermined", "not_run"), f"without {probe}: {less.sentence}"
        assert less.class_ is None and less.open


@pytest.mark.parametrize("name", DECIDED)
def test_any_record_less_never_gives_another_owner(name):
    run, records, owner, _ = DECIDED[name]
    for index in range(len(records)):
        assert verdict(run, records[:index] + records[index + 1 :]).owner in (owner, "undetermined", "not_run")


@pytest.mark.parametrize("name", DECIDED)
@pytest.mark.parametrize("status", ["not_run", "skipped", "timeout"])
def test_a_probe_that_did_not_run_supports_nothing(name, status):
    run, records, *_ = DECIDED[name]
    for probe in verdict(run, records).records:
        altered = [
            record(r.arm, status, role=r.role, subject=r.subject, probe=r.probe, watched=r.watched, **PLANTED)
            if r.probe == probe
            else r
            for r in records
        ]
        assert verdict(run, altered).owner in ("undetermined", "not_run")


TEXT_ALONE = ("trees replay", "a tree's output", "cuBLAS", "warmed in another", "pageable", "no fake")
"""Classes that carry no code and no witness: the text is all there is."""


@pytest.mark.parametrize("name", [n for n in DECIDED if not n.startswith(TEXT_ALONE)])
def test_texts_are_not_needed_where_codes_and_witnesses_are(name):
    run, records, owner, cls = DECIDED[name]
    blank = [
        r.model_copy(update={"chain": [item.model_copy(update={"text": ""}) for item in r.chain]}) for r in records
    ]
    found = verdict(run, blank)
    assert (found.owner, found.class_) == (owner, cls)


@pytest.mark.parametrize("missing", ["trivial", "planted_item", "baked_scalar"])
@pytest.mark.parametrize("name", ["survives", "the story", "item"])
def test_without_a_control_it_did_not_run(name, missing):
    run, records, *_ = DECIDED[name]
    found = verdict(run, [r for r in records if not r.subject.target.endswith(missing)])
    assert (found.owner, found.class_, found.root) == ("not_run", None, None)
    assert any(missing in line for line in found.open)


def altered_control(index: int, new: Record) -> list[Record]:
    given = controls()
    changed = new.model_copy(update={"subject": given[index].subject, "probe": given[index].probe, "role": "control"})
    return [*given[:index], changed, *given[index + 1 :], *run_of(fail(WARM, 900))[3:]]


def test_a_control_that_passes_when_it_must_fail():
    found = verdict(info(WARM), altered_control(1, record(controls()[1].arm)))
    assert found.owner == "not_run"
    assert "planted .item()" in found.open[0] and "pass" in found.open[0]


def test_a_control_that_fails_otherwise():
    found = verdict(info(WARM), altered_control(0, early(controls()[0].arm, "no such module", "ImportError")))
    assert found.owner == "not_run"


def test_a_control_that_fails_with_a_cuda_error_is_the_environment_once_scrubbed():
    records = altered_control(0, fail(controls()[0].arm, 900))
    found = verdict(info(WARM), records)
    assert found.owner == "not_run"
    assert any("scrubbed" in line for line in found.open)
    scrubbed = record(WARM, role="scrubbed", effective={"suspect_variables": {}})
    found = verdict(info(WARM), [*records, scrubbed])
    assert (found.owner, found.class_, found.fixed) == ("environment", "B7", "fixed")
    still = fail(WARM, 900, role="scrubbed", effective={"suspect_variables": {}})
    assert verdict(info(WARM), [*records, still]).owner == "not_run"
    # A process that says it was scrubbed, and in which the setting is still seen, proves nothing.
    not_scrubbed = record(WARM, role="scrubbed", effective={"suspect_variables": {"PYTORCH_ALLOC_CONF": "x"}})
    assert verdict(info(WARM), [*records, not_scrubbed]).owner == "not_run"


def test_a_control_that_is_missing_beside_one_that_fails_with_a_cuda_error():
    records = altered_control(0, fail(controls()[0].arm, 900))
    scrubbed = record(WARM, role="scrubbed", effective={"suspect_variables": {}})
    left = [r for r in records if not r.subject.target.endswith("baked_scalar")]
    found = verdict(info(WARM), [*left, scrubbed])
    assert found.owner == "not_run" and any("baked_scalar" in line for line in found.open)


def test_controls_that_contradict():
    trivial = controls()[0]
    broken = fail(trivial.arm, 900, role="control", subject=trivial.subject, tag="resumed")
    found = verdict(info(WARM), [*run_of(record(WARM)), broken])
    assert found.owner == "undetermined"
    assert "contradict" in found.open[0] and "trivial" in found.open[0]


@pytest.mark.parametrize("name", DECIDED)
def test_a_repeat_that_disagrees(name):
    run, records, owner, _ = DECIDED[name]
    asked = next(r for r in records if r.role == "unwatched")
    other = fail(asked.arm, 999, role="repeat") if asked.status == "pass" else record(asked.arm, role="repeat")
    found = verdict(run, [*records, other])
    if name.startswith("another thread"):  # a capture that is broken now and then is what threads do
        assert found.owner == owner
    else:
        assert found.owner == "undetermined"
        assert "disagree" in found.open[0]


def test_two_roots():
    run, records, *_ = DECIDED["the story"]
    found = verdict(run, [*records, fail(STORY, 900, frames="generated", role="repeat")])
    assert found.owner == "undetermined"
    assert "two roots" in found.open[0] and "900" in found.open[0] and "905" in found.open[0]


def test_905_replaced_by_900_is_another_root():
    run, records, *_ = DECIDED["the story"]
    swap = {"chain": [link(901, frames="none"), link(900, frames="wait_stream")]}
    altered = [r.model_copy(update=swap) if r.status == "fail" and r.role != "control" else r for r in records]
    before, after = verdict(run, records), verdict(run, altered)
    assert (before.root["code"], before.root["name"]) == (905, "cudaErrorStreamCaptureIsolation")
    assert after.root["code"] == 900
    assert any("905 does not reproduce" in line for line in after.caveats)
    assert not any("reproduce" in line for line in before.caveats)


def test_without_compiled_and_captured_arms_it_is_undetermined():
    run, records, *_ = DECIDED["the story"]
    left = [r for r in records if r.arm.compile == "none" or r.arm.capture == "none"]
    assert len(left) == 4
    assert verdict(run, left).owner == "undetermined"


def test_another_runs_records_do_not_count():
    run, records, *_ = DECIDED["the story"]
    found = verdict({**run, "nonce": "fedcba9876543210"}, records)
    assert found.owner == "not_run"
    assert str(len(records)) in found.open[0]
    stray = record(STORY, role="repeat").model_copy(update={"nonce": "fedcba9876543210"})
    found = verdict(run, [*records, stray])
    assert found.owner == "stack"
    assert any("another run's nonce" in line for line in found.caveats)
    assert run["nonce"] == NONCE


def test_a_pass_where_an_error_was_reported_does_not_reproduce():
    found = verdict(info(STORY, 905), run_of(record(STORY)))
    assert (found.owner, found.status) == ("none", "pass")
    assert any("905 does not reproduce here" in line for line in found.caveats)


def test_failures_in_other_arms_are_hazards():
    cold = Arm(warmup="kernel_cold")
    tuned = fail(cold, 900, frames="autotune", seen=["autotune"])
    found = verdict(info(WARM), [*run_of(record(WARM), tuned, record(cold.changed(variant="twin")))])
    assert found.owner == "none"
    assert [(h["owner"], h["class"], h["root"]["code"]) for h in found.hazards] == [("kernel", "K1", 900)]
    assert found.hazards[0]["records"] == [tuned.probe]


def test_caveats_of_a_pass():
    cold = Arm(warmup="cold", compile="eager")
    passed = record(cold, counts={"dynamo@capture": 1}, caveats=["said by the driver"], provenance={"driver": "580.1"})
    said = " | ".join(verdict(info(cold), run_of(passed)).caveats)
    assert "compiled inside the capture" in said and "580.1" in said and "said by the driver" in said


def test_fix_that_was_run_and_what_it_gains():
    run, records, *_ = DECIDED["the story"]
    assert verdict(run, records).fixed == "not tried"
    event, uncompiled = STORY.changed(sync="event"), STORY.changed(compile="none")
    failed = fail(event, 905, role="fix", seen=["wait"])
    assert verdict(run, [*records, failed]).fixed == "not fixed"
    assert verdict(run, [*records, failed]).sentence.endswith("in line. Run here, and no cure: sync=event.")
    cured = record(event, role="fix")
    found = verdict(run, [*records, cured, record(uncompiled)])
    assert found.fixed == "fixed" and "sync=event" in found.fix
    assert found.gain is None and found.gain_reason == "no times were recorded for sync=event beside compile=none"
    beside = {"kind": "gain", "role": "repeat", "payload": {"baseline": uncompiled.model_dump()}}
    times = {"fixed": [10.0, 11.0, 12.0, 13.0], "baseline": [20.0, 33.0, 24.0, 26.0]}
    timed = record(event, tag="timed", samples=times, **beside)
    found = verdict(run, [*records, cured, record(uncompiled), timed])
    assert found.gain["ratio"] == pytest.approx(25.0 / 11.5)
    assert found.gain["ratio_iqr"] == pytest.approx([2.0, 2.75]), "round by round: 2, 3, 2, 2"
    assert (found.gain["fixed"], found.gain["baseline"]) == ("sync=event", "compile=none")
    assert found.gain["record"] == timed.probe
    broken = record(event, "wrong", tag="timed", reason="replay 1: out is off", **beside)
    found = verdict(run, [*records, cured, record(uncompiled), broken])
    assert found.gain is None and "wrong: replay 1: out is off" in found.gain_reason
    assert found.fixed == "fixed", "times are no evidence about the arm"


def test_a_fix_that_keeps_the_overlap_is_preferred():
    run, records, *_ = DECIDED["the story"]
    event = record(STORY.changed(sync="event"), graph={"parallel": False}, caveats=["overlap lost: one chain"])
    whole = record(STORY.changed(graph_break="none"), graph={"parallel": True})
    assert "sync=event" in verdict(run, [*records, event]).fix
    assert any("overlap lost" in line for line in verdict(run, [*records, event]).caveats)
    kept = verdict(run, [*records, event, whole])
    assert "graph_break=none" in kept.fix
    assert any(line.startswith("With the fix: overlap kept") for line in kept.lines())


@pytest.mark.parametrize(
    ("quartiles", "fixed", "baseline", "says"),
    [
        ([0.7, 0.8], "sync=event", "compile=none", "compiling with the fix is slower than not compiling"),
        ([1.2, 1.3], "sync=event", "compile=none", "compiling with the fix is faster than not compiling"),
        ([0.9, 1.1], "tuning=pinned", "warmup=warm2", "the fix is as fast as warmup=warm2, within the spread"),
    ],
)
def test_the_gain_in_words(quartiles, fixed, baseline, says):
    assert costs.compared({"ratio_iqr": quartiles, "fixed": fixed, "baseline": baseline}) == says


def test_a_class_without_a_change_of_arm_needs_a_code_change():
    run, records, *_ = DECIDED["item"]
    assert verdict(run, records).fixed == "needs a code change"


def test_a_variable_that_the_run_sets_is_undone_by_the_fix():
    """`probe --env TORCHINDUCTOR_CUDAGRAPHS=1`: the arm itself sets nothing, so the fix has to set it to 0."""
    run = info(COMPILED, env={"TORCHINDUCTOR_CUDAGRAPHS": "1"})
    records = run_of(fail(COMPILED, 900, frames="trees"))
    assert verdict(run, records).fixed == "not tried"
    cured = record(COMPILED.changed(env={"TORCHINDUCTOR_CUDAGRAPHS": "0"}), role="fix")
    found = verdict(run, [*records, cured])
    assert (found.class_, found.fixed) == ("B3", "fixed")
    assert found.fix.endswith("Run here: env=TORCHINDUCTOR_CUDAGRAPHS=0 passes.")


def test_trees_by_the_mode_and_by_the_variable_need_both_undone():
    trees = Arm(compile="reduce-overhead")
    mode, both = trees.changed(compile="default"), {"TORCHINDUCTOR_CUDAGRAPHS": "0"}
    assert RECIPES["B3"].arms(trees, {}) == [mode]
    assert RECIPES["B3"].arms(trees, {"TORCHINDUCTOR_CUDAGRAPHS": "1"}) == [mode, mode.changed(env=both)]
    # Nobody said so, and trees were seen in a mode that has none: the shell may have set it.
    assert RECIPES["B3"].arms(COMPILED, {}) == [COMPILED.changed(env=both)]


def test_a_variable_of_the_libraries_that_the_run_sets_is_tried_without():
    """Not one of the allocator, debug and profiler list, which have a scrubbed process; the step's own stays."""
    run = info(WARM, env={"NVIDIA_TF32_OVERRIDE": "1", "MY_STEP_MODE": "fast"})
    failed = fail(WARM, None, "odd", frames="none")
    assert verdict(run, run_of(failed)).open == [
        "arm, env=NVIDIA_TF32_OVERRIDE=: does it pass without NVIDIA_TF32_OVERRIDE?"
    ]
    undone = Arm(env={"NVIDIA_TF32_OVERRIDE": ""})
    found = verdict(run, run_of(failed, record(undone)))
    assert (found.owner, found.class_, found.fixed) == ("environment", "B7", "fixed")
    assert verdict(run, run_of(failed, fail(undone, None, "odd", frames="none"))).owner == "undetermined"


def test_what_is_gone_once_it_ran_is_no_error_of_the_step_s_own():
    """A status of a library that nobody knows, met first in this thread: whose it is, its text alone could tell."""
    elsewhere = Arm(thread="other")
    found = verdict(info(elsewhere), run_of(fail(elsewhere, None, "NEWLIB_NOT_READY"), record(WARM)))
    assert (found.owner, found.class_) == ("undetermined", None)
    assert "gone once this thread and stream ran the step" in " ".join(found.open)
    stays = fail(elsewhere, None, "NEWLIB_NOT_READY"), fail(WARM, None, "NEWLIB_NOT_READY")
    assert (verdict(info(elsewhere), run_of(*stays)).owner) == "kernel"
    late = fail(WARM, None, "NEWLIB_NOT_READY", payload={"frozen_advance_passes": True})
    assert verdict(info(WARM), run_of(late)).owner == "undetermined"


def test_memory_that_ran_out_accuses_nobody():
    full = fail(WARM, None, "CUDA out of memory. Tried to allocate 2.00 GiB.", kind="OutOfMemoryError")
    found = verdict(info(WARM), run_of(full))
    assert (found.owner, found.class_) == ("undetermined", None)
    assert "OutOfMemoryError at capture" in found.open[0]


def test_json_has_the_contracts_fields():
    run, records, *_ = DECIDED["the story"]
    data = json.loads(json.dumps(verdict(run, records).to_json(), allow_nan=False))
    wanted = "question owner class status root fix fixed gain records hazards caveats open sentence"
    assert set(wanted.split()) <= set(data)
    assert set(data["root"]) == {"code", "name", "text"}
    assert Arm(**data["question"]["arm"]) == STORY and data["question"]["error"] == 905
    assert data["sentence"].startswith("Owner stack, class B5")


def test_a_witness_that_changes_the_outcome_is_no_evidence():
    run, records, *_ = DECIDED["the story"]
    unwatched = record(STORY, role="unwatched")
    found = verdict(run, [unwatched if r.role == "unwatched" else r for r in records])
    assert found.owner == "undetermined" and "disagree" in found.open[0]
