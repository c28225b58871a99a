"""Keywords of a subject's build as factors: read, written, told apart, laid over fixed ones; old records unchanged."""

import json

import pytest

from capturebook.attribution import load_hypothesis, plan
from capturebook.chain import plan as chain_plan
from capturebook.chain.parts import own_options
from capturebook.params import validate
from capturebook.records import Arm, Record, Subject, arm_from, frame, parse_factors, probe_id, write_option
from capturebook.subjects.loader import SubjectError, options_for
from evidence.records import record

FUSED = Arm(compile="default", options={"glue": "fused"})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("option.glue=fused,compile=default", {"glue": "fused"}),
        ("option.padded=true, option.tp=4", {"padded": True, "tp": 4}),
        ('option.size="8",option.scale=0.5,option.seedless=null', {"size": "8", "scale": 0.5, "seedless": None}),
        ("option.path=a=b,option.cache=none", {"path": "a=b", "cache": "none"}),
    ],
)
def test_a_question_gives_options_as_json_or_as_text(text, options):
    arm = arm_from(parse_factors(text))
    assert arm.options == options
    assert [type(arm.options[name]) for name in options] == [type(value) for value in options.values()]


@pytest.mark.parametrize("value", ["fused", "8", "true", "null", "", " x", '"x"', "[1", True, None, 8, 0.5, "größe"])
def test_what_is_written_reads_back_as_it_was(value):
    assert arm_from(parse_factors(f"option.x={write_option(value)}")).options == {"x": value}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("glue=fused", "question: 'glue=fused' names no factor; factors are variant, "),
        ("options=fused", "question: 'options=fused' names no factor"),
        ("option.glue", "question: 'option.glue' is not factor=value"),
        ("option.a=1,option.a=2", "question: option.a is given twice"),
        ("option.a=[1]", "question: option.a='[1]'; allowed: text, a number, true, false or null"),
        ("option.a=", "question: option.a=''; allowed: text, a number"),
        ('option.a="x,y"', "question: option.a='\"x'; allowed: JSON, or text without quotes and commas"),
        ("option.a=NaN", "arm: option.a=nan; allowed: text, a finite number"),
        ("option.a=1e999", "arm: option.a=inf; allowed: text, a finite number"),
        ("option.a b=1", "arm: option.a b=1; allowed: a keyword of the subject's build"),
        ("option.=1", "arm: option.=1; allowed: a keyword"),
        ("option.kernel=mma", "arm: option.kernel='mma'; allowed: kernel, which is a factor of its own"),
        ("option.tuning=live", "arm: option.tuning='live'; allowed: tuning"),
    ],
)
def test_a_factor_that_cannot_be_is_one_line(text, says):
    with pytest.raises(ValueError) as caught:
        arm_from(parse_factors(text))
    assert str(caught.value).startswith(says) and "\n" not in str(caught.value)
    assert "option.NAME" in str(caught.value) or "not factor" not in says


def test_arms_differ_in_each_option_by_itself():
    other = FUSED.changed(**{"option.glue": "eager", "option.tp": 4})
    assert FUSED.differences(other) == {"option.glue": ("fused", "eager"), "option.tp": ("(unset)", 4)}
    assert other.label(FUSED) == "option.glue=eager option.tp=4"
    assert FUSED.label(other) == "option.glue=fused option.tp=(unset)"
    assert FUSED.label() == "compile=default option.glue=fused"
    assert other.changed(options={}) == Arm(compile="default"), "given whole, they take the place of all"
    assert Arm(options={"a": 1, "b": 2}).model_dump_json() == Arm(**{"option.b": 2, "option.a": 1}).model_dump_json()
    assert Record.from_line(record(other).to_line()).arm == other
    (row,) = frame([record(other)]).to_dict("records")
    assert (row["arm.option.tp"], row["arm.compile"]) == (4, "default")


def test_an_arm_without_options_is_written_as_before_there_were_any(repo):
    """The records of the kept run: each line is what it was, and each planned probe has the id it was run under."""
    lines = (repo / "outputs/h200/records.jsonl").read_text().splitlines()
    records = [Record.from_line(line) for line in lines]
    assert [r.to_line() for r in records] == lines
    parameters = json.loads((repo / "outputs/h200/run.json").read_text())["parameters"]
    planned = [r for r in records if r.kind == "step" and r.role in ("arm", "unwatched")]
    assert len(planned) > 20
    for r in planned:
        assert plan.arm_probe(r.arm, parameters, role=r.role, watched=r.watched).id == r.probe
    assert probe_id("step", None, FUSED, 0) != probe_id("step", None, FUSED.changed(options={}), 0)


def test_build_gets_them_over_the_subjects_own():
    def build(glue="eager", tp=8, kernel="mma"):
        return glue, tp, kernel

    about = Subject(target="x:build", options={"tp": 4, "glue": "compiled"})
    keywords, skipped = options_for(build, about, FUSED.changed(kernel="simt"))
    assert (build(**keywords), skipped) == (("fused", 4, "simt"), "")
    with pytest.raises(SubjectError) as by_arm:
        options_for(build, Subject(target="x:build"), Arm(options={"glu": 1}))
    with pytest.raises(SubjectError) as by_subject:
        options_for(build, Subject(target="x:build", options={"glu": 1}), Arm())
    assert str(by_arm.value) == str(by_subject.value) == "options: build takes no 'glu'; allowed: glue, kernel, tp"
    assert options_for(lambda **options: options, about, FUSED)[0] == {"tp": 4, "glue": "fused"}


def test_what_is_fixed_is_no_factor_as_well(tmp_path):
    given = {"hypothesis": "own_kernel", "subject": "x.py:build", "options": {"glue": "fused"}}
    with pytest.raises(ValueError) as caught:
        chain_plan.ask(validate({**given, "question": "option.glue=fused"}))
    assert str(caught.value) == (
        'parameter options: given {"glue": "fused"}; allowed: no glue, which option.glue of the question sets'
    )
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntitle: t\nstory: s\narms: [{id: a, factors: {option.glue: eager}, why: w}]\n"
        "rivals: [{id: r, statement: s, predicts: {a: {status: pass}}}]\n"
    )
    mine = {**given, "hypothesis": str(tmp_path / "mine.yaml")}
    with pytest.raises(ValueError, match="which option.glue of arm a of the hypothesis sets"):
        chain_plan.ask(validate(mine))
    _, question, planned = chain_plan.ask(validate({**mine, "options": {"tp": 4}, "question": "option.size=small"}))
    assert question.arm.options == {"size": "small"} and planned[0]["arm"]["options"] == {"glue": "eager"}


def test_builds_and_sweeps_of_an_own_step_have_the_questions_options():
    class Session:
        params = validate({"options": {"tp": 4}})
        question = load_hypothesis("own_kernel").asks(validate({"question": "option.glue=fused,batch=2"}))

    assert own_options(Session) == {"tp": 4, "glue": "fused", "batch": 2}
