"""Hypotheses as data: shipped files, errors in one line, scores and conclusions on outcomes as an H200 gave them."""

import json

import pytest
import yaml

from capturebook.attribution import explain, judge, load_hypothesis, neither_right, plan, score
from capturebook.attribution.hypotheses import HypothesisError, hypothesis_names
from capturebook.params import validate
from capturebook.records import Arm, Record
from evidence import h200
from evidence.records import controls, fail, info, record


@pytest.fixture(scope="module")
def story_run() -> tuple[dict, list[Record]]:
    """The story's run.json and records: every planned arm, then what the plan still asks for."""
    story = load_hypothesis("story")
    run = info(story.asks().arm, 905)
    probes = [*plan.controls(run["parameters"]), *(plan.arm_probe(arm, run["parameters"]) for _, arm in story.probes())]
    records = [h200.answer(probe) for probe in probes]
    while more := plan.next_probes(run, records):
        records += [h200.answer(probe) for probe in more]
    return run, records


@pytest.mark.parametrize("name", hypothesis_names())
def test_shipped_files_parse_and_every_arm_is_one(name, repo):
    story = load_hypothesis(name)
    assert story.name == name
    assert all(isinstance(arm, Arm) for _, arm in story.probes())
    dumped = json.loads(json.dumps(story.model_dump()))
    assert type(story)(**dumped) == story
    plain = yaml.safe_load((repo / "params" / "hypotheses" / f"{name}.yaml").read_text())
    assert type(story)(**plain) == story, "YAML 1.1 and 1.2 read this file differently"


def test_story_holds_what_discriminates():
    story = load_hypothesis("story")
    arms, asked = dict(story.probes()), story.asks()
    assert 22 <= len(arms) <= 30
    assert asked.error == 905 and asked.arm in arms.values()
    singles = [asked.arm.differences(arm) for arm in arms.values()]
    removed = {name: new for diff in singles if len(diff) == 1 for name, (_, new) in diff.items()}
    assert {"compile", "capture", "overlap", "sync", "graph_break", "kernel", "tuning", "variant", "env"} <= set(
        removed
    )
    for factor, values in {
        "kernel": {"simt", "mma"},
        "tuning": {"live", "pinned"},
        "warmup": {"kernel_cold", "warm2"},
        "sync": {"stream", "event"},
        "compile": {"none", "default", "max-autotune-no-cudagraphs", "reduce-overhead", "eager", "aot_eager"},
        "capture": {"none", "global"},
        "overlap": {True, False},
        "graph_break": {"none", "before", "after_fork", "between"},
    }.items():
        assert {getattr(arm, factor) for arm in arms.values()} == values
    assert {arm.env.get("TORCHINDUCTOR_CUDAGRAPHS") for arm in arms.values()} == {None, "0"}
    assert all(planned.why for planned in story.arms)


def test_rivals_say_what_the_story_said():
    kernel, stack = load_hypothesis("story").rivals
    assert (kernel.id, stack.id) == ("kernel", "stack")
    for cure in ("pinned", "simt"):
        assert kernel.predicts[cure].status == "pass" and stack.predicts[cure].code == 905
    for cure in ("env0", "trees_env0"):
        assert stack.predicts[cure].status == "pass"
    assert kernel.predicts["cold_live"].code == 905 and stack.predicts["cold_live"].status == "pass"
    assert stack.predicts["no_compile"].status == kernel.predicts["no_compile"].status == "pass"


def test_question_from_parameters():
    story, own = load_hypothesis("story"), load_hypothesis("own_kernel")
    assert story.asks(validate({})) == story.asks()
    asked = story.asks(validate({"question": "compile=none,overlap=false", "error": 900}))
    assert asked.error == 900 and (asked.arm.compile, asked.arm.overlap, asked.arm.kernel) == ("none", False, "mma")
    assert own.asks().follow_compiled and own.asks().arm == Arm()
    assert not own.asks(validate({"question": "warmup=cold"})).follow_compiled


MINIMAL = {
    "name": "mine",
    "title": "t",
    "story": "s",
    "arms": [{"id": "a", "factors": {}, "why": "w"}],
    "rivals": [{"id": "r", "statement": "s", "predicts": {"a": {"status": "pass"}}}],
}


@pytest.mark.parametrize(
    "change, said",
    [
        ({"arms": [{"id": "a", "factors": {"compile": "fast"}, "why": "w"}]}, "arms.a: arm: compile='fast'"),
        ({"arms": [{"id": "a", "factors": {"colour": 1}, "why": "w"}]}, "colour=1"),
        (
            {"arms": [{"id": "a", "factors": {"option.layers": ["swa"]}, "why": "w"}]},
            "arms.a: arm: option.layers=['swa']; allowed: text, a finite number, true, false or null",
        ),
        ({"base": {"option.batch": 8}}, "arm: option.batch=8; allowed: batch, which is a factor of its own"),
        ({"arms": [*MINIMAL["arms"], {"id": "b", "factors": {}, "why": "w"}]}, "arms.b: the same arm as a"),
        ({"arms": [*MINIMAL["arms"], *MINIMAL["arms"]]}, "the id 'a' is given twice"),
        ({"arms": []}, "arms=[]"),
        ({"rivals": [{"id": "r", "statement": "s", "predicts": {"z": {"status": "pass"}}}]}, "rivals.r: no arm 'z'"),
        (
            {"rivals": [{"id": "r", "statement": "s", "predicts": {"a": {"status": "skipped"}}}]},
            "rivals.0.predicts.a.status",
        ),
        ({"fixes": [{"id": "f", "arms": ["z"], "says": "s"}]}, "fixes.f: no arm 'z'"),
        ({"question": {"arm": {"sync": "both"}}}, "question: arm: sync='both'"),
        ({"question": {"arm": {}, "error": "905"}}, "question.error='905'"),
        ({"extra": 1}, "extra=1"),
        ({"title": ""}, "title=''"),
    ],
)
def test_errors_are_one_line_that_names_the_place(tmp_path, change, said):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, **change}))
    with pytest.raises(HypothesisError) as caught:
        load_hypothesis(path)
    line = str(caught.value)
    assert line.startswith("hypothesis: ") and "\n" not in line and said in line and "mine.yaml" in line


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(HypothesisError, match="given 'nosuch', which is no file; allowed: own_kernel, story"):
        load_hypothesis("nosuch")
    (tmp_path / "broken.yaml").write_text("arms: [\n")
    with pytest.raises(HypothesisError, match="hypothesis: .*broken.yaml"):
        load_hypothesis(tmp_path / "broken.yaml")


def test_scores(story_run):
    _, records = story_run
    kernel, stack = score(load_hypothesis("story").model_dump(), records)
    assert (kernel.total, stack.total) == (27, 29)
    # Counted by hand from the table of measured outcomes.
    assert (kernel.held, kernel.contradicted, kernel.not_tested) == (12, 15, 0)
    assert (stack.held, stack.contradicted, stack.not_tested) == (14, 15, 0)
    assert neither_right([kernel, stack]) == [
        "no_overlap", "events", "no_break", "break_before", "break_after_fork", "dynamo_only", "server_mode_events",
        "plain_step", "cold_live", "cold_live_no_overlap", "cold_simt", "cold_compiled",
    ]  # fmt: skip
    row = next(r for r in kernel.rows if r.arm == "cold_live")
    assert (row.predicted, row.found, row.mark) == ("fail with 905", "fail with 900", "contradicted")
    json.dumps(kernel.to_json())


def test_scores_without_evidence_say_not_tested(story_run):
    _, records = story_run
    story = load_hypothesis("story")
    assert [r.not_tested for r in score(story, [])] == [27, 29]
    gone = [r.model_copy(update={"status": "skipped", "reason": "no GPU", "chain": [], "samples": {}}) for r in records]
    scores = score(story, gone)
    assert [(r.held, r.contradicted, r.not_tested) for r in scores] == [(0, 0, 27), (0, 0, 29)]
    assert neither_right(scores) == []
    assert {row.found for r in scores for row in r.rows} == {"skipped"}


def test_repeats_that_disagree_hold_for_nobody(story_run):
    _, records = story_run
    twice = [r for r in records if r.arm == load_hypothesis("story").arm("seen") and r.role == "arm"]
    other = twice[0].model_copy(update={"status": "pass", "chain": [], "probe": "other", "role": "repeat"})
    row = score(load_hypothesis("story"), [*records, other])[0].rows[0]
    assert row.arm == "seen" and row.mark == "contradicted" and " / " in row.found


def test_story_reaches_its_verdict(story_run):
    run, records = story_run
    found = judge(run, load_hypothesis("story").model_dump(), records)
    assert (found.owner, found.class_, found.root["code"], found.fixed) == ("stack", "B5", 905, "fixed")
    classes = {h["id"]: (h["owner"], h["class"]) for h in found.hazards}
    assert classes["break_after_fork"] == ("stack", "B5")
    assert classes["simt"] == classes["pinned"] == classes["env0"] == classes["server_mode"] == ("stack", "B5")
    assert classes["cold_live"] == classes["cold_simt"] == ("kernel", "K1")
    # Nothing was run that could tell: its plain arm and its twin are not among the planned arms.
    assert classes["cold_live_no_overlap"] == ("undetermined", None)
    assert classes["cold_compiled"] == ("stack", "B1")
    assert classes["trees"] == classes["trees_env0"] == ("stack", "B3")
    assert "" not in classes


def test_conclusions_in_words(story_run):
    run, records = story_run
    story = load_hypothesis("story")
    said = explain(judge(run, story.model_dump(), records), story.model_dump(), records)
    text = "\n".join(said)
    needs = next(line for line in said if line.startswith("905 needs"))
    for factor in ("capture=global", "compile=default", "graph_break=between", "overlap=true", "sync=stream"):
        assert factor in needs.partition(":")[0]
    nothing = next(line for line in said if line.startswith("905 stays with each of these changes, made alone: "))
    for change in ("kernel=simt", "tuning=pinned", "TORCHINDUCTOR_CUDAGRAPHS=0", "variant=twin", "aot_eager"):
        assert change in nothing
    assert (
        "The error becomes another one with a single change: graph_break=after_fork gives 900 (B5, the same cause), "
        "warmup=kernel_cold gives 900 (B1)." in said
    )
    assert "ended with 900, never 905" in text
    assert "TORCHINDUCTOR_CUDAGRAPHS=0 with compile=default (fail with 905 either way)" in text
    assert "TORCHINDUCTOR_CUDAGRAPHS=0 with compile=reduce-overhead" in text and "An effect" not in text
    cures = next(line for line in said if line.startswith("What cures it"))
    assert "switch torch.compile off" in cures and "by events" in cures and "pin" not in cures
    assert (
        "What does not cure it: pin the kernel's tuning; switch the MMA kernel off; set TORCHINDUCTOR_CUDAGRAPHS=0."
        in said
    )
    assert "Neither rival was right in 12 arms" in text


def test_no_sentence_rests_on_an_arm_that_did_not_run(story_run):
    run, records = story_run
    story = load_hypothesis("story")
    only = [r for r in records if r.role == "control"]
    said = explain(judge(run, story.model_dump(), only), story, only)
    assert len(said) == 3 and said[0].startswith("Undetermined")
    assert all("0 held, 0 were contradicted" in line for line in said[1:])


OF_OPTIONS = """
name: mine
title: Is it the fused glue
story: It was told that the fused glue does it.
question: {arm: {}, error: 906}
base: {option.glue: fused, option.tp: 4}
arms:
  - {id: seen, factors: {}, why: the arm in which it fails}
  - {id: eager, factors: {option.glue: eager}, why: is the fused glue needed}
  - {id: whole, factors: {option.tp: 1}, why: is the rank needed}
rivals:
  - {id: glue, statement: the fused glue, predicts: {eager: {status: pass}, whole: {status: fail, code: 906}}}
  - {id: rank, statement: the rank, predicts: {eager: {status: fail, code: 906}, whole: {status: pass}}}
"""


def test_an_arm_and_its_rivals_may_be_about_keywords_of_build(tmp_path):
    (tmp_path / "mine.yaml").write_text(OF_OPTIONS)
    mine = load_hypothesis(tmp_path / "mine.yaml")
    assert mine.arm("eager").options == {"glue": "eager", "tp": 4}
    assert mine.asks(validate({"question": "option.glue=compiled"})).arm.options == {"glue": "compiled", "tp": 4}
    records = [*controls(), fail(mine.arm("seen"), 906), fail(mine.arm("whole"), 906), record(mine.arm("eager"))]
    kernel, rank = score(mine, records)
    assert (kernel.held, kernel.contradicted, rank.held, rank.contradicted) == (2, 0, 0, 2)
    assert [row.label for row in kernel.rows if row.arm == "eager"] == ["option.glue=eager"]
    found = judge(info(mine.asks().arm, 906), mine.model_dump(), records)
    assert [(h["id"], h["label"]) for h in found.hazards] == [("whole", "option.tp=1")]
    said = explain(found, mine.model_dump(), records)
    assert "906 needs option.glue=fused, all together: it is gone with any one of option.glue=eager." in said
    assert "906 stays with this change: option.tp=1." in said
