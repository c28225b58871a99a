"""`capturebook probe` from the command line to its exit status, with records written by hand in place of a GPU's."""

import json
import os
import sys
from datetime import UTC, datetime

import pytest

import planted_repo
from capturebook import cli
from capturebook.records import Frame, Link
from evidence.records import controls, early, fail, record


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = planted_repo.repository(tmp_path / "repo", a00_one=["pass"])
    (root / "own.py").write_text("def build():\n    return 0\n")
    (root / "glued.py").write_text("def build(glue='eager', tp=8):\n    return 0\n")
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(root))
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def answered(monkeypatch):
    """Probes are answered by `answered.by(probe)`; controls behave unless `answered.controls` says otherwise."""

    class Standin:
        gpu, by, controls = "GPU-0", None, staticmethod(controls)

        def __init__(self, run, on_event):
            self.run_folder = run

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def run(self, probes):
            return [self.answer(probe) for probe in probes]

        def answer(self, probe):
            if probe.role == "control":
                name = probe.subject.target.rpartition(":")[2]
                made = next(r for r in type(self).controls() if r.subject.target.endswith(name))
            else:
                made = type(self).by(probe)
            mine = {"role": probe.role, "subject": probe.subject, "probe": probe.id, "watched": probe.watched}
            mine |= {"run": self.run_folder.name, "nonce": self.run_folder.nonce, "kind": probe.kind}
            # One that was made before this start would be asked for again, without end.
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            mine |= {"started": now, "ended": now}
            made = made.model_copy(update=mine)
            self.run_folder.append(made)
            return made

    monkeypatch.setattr("capturebook.cli.probe.ProbePool", Standin)
    return Standin


def probed(capsys, *more):
    """(exit status, verdict, last line but what its fix gains)."""
    status = cli.main(["probe", "own.py:build", "--question", "compile=none", "--json", *more])
    out, err = capsys.readouterr()
    lines = [line for line in err.strip().splitlines() if not line.startswith("With the fix: ")]
    return status, json.loads(out), lines[-1]


def test_a_step_that_hangs_is_undetermined_and_incomplete(root, answered, capsys):
    """A longer deadline may decide it, so that it counts as not complete; the verdict says where it was."""
    answered.by = lambda p: record(p.arm, "timeout", reason="no end within 60 s; it was at capture")
    status, found, said = probed(capsys)
    assert (status, found["owner"], found["class"], found["status"]) == (3, "undetermined", None, "timeout")
    assert said == "Undetermined: the question's arm: no end within 60 s; it was at capture."


def test_a_companion_that_hangs_leaves_it_incomplete_too(root, answered, capsys):
    def answer(probe):
        if probe.watched:
            return fail(probe.arm, 900)
        return record(probe.arm, "timeout", reason="no end within 60 s; it was at warmup")

    answered.by = answer
    status, found, _ = probed(capsys)
    assert (status, found["owner"]) == (3, "undetermined")


def test_a_step_that_kills_its_process_was_answered(root, answered, capsys):
    answered.by = lambda p: record(p.arm, "fail", reason="died: signal 11 (SIGSEGV) at capture")
    status, found, said = probed(capsys)
    assert (status, found["owner"], found["class"]) == (0, "undetermined", None)
    assert "ended by itself inside the step (died: signal 11 (SIGSEGV) at capture)" in said


def test_controls_that_contradict_are_incomplete(root, answered, capsys):
    answered.by = lambda p: record(p.arm)
    answered.controls = lambda: [fail(controls()[0].arm, 900, subject=controls()[0].subject), *controls()[1:]]
    status, found, _ = probed(capsys)
    assert (status, found["owner"]) == (3, "undetermined")


def test_a_variable_given_on_the_command_line_is_undone_by_a_fix_that_is_run(root, answered, capsys):
    def answer(probe):
        trees = probe.arm.compile != "none" and probe.environment.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
        return fail(probe.arm, 900, frames="trees") if trees else record(probe.arm)

    answered.by = answer
    status, found, said = probed(capsys, "--question", "compile=default", "--env", "TORCHINDUCTOR_CUDAGRAPHS=1")
    assert (status, found["owner"], found["class"], found["fixed"]) == (0, "stack", "B3", "fixed")
    assert said.endswith("Run here: env=TORCHINDUCTOR_CUDAGRAPHS=0 passes.")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (early, "the eager step fails before any capture (ValueError: no such head) at my_step.py:40"),
        (
            lambda *a, **k: early(*a, **{**k, "stage": "build"}),
            "the step cannot be built (ValueError: no such head) at my_step.py:40",
        ),
        (
            lambda arm, text, kind, **k: early(arm, text, "SubjectError", "capturebook.subjects.loader", **k),
            "the step breaks its contract: no such head",
        ),
    ],
)
def test_what_fails_before_any_capture_is_told_in_words(root, answered, capsys, error, says):
    answered.by = lambda p: error(p.arm, "no such head\nat all", "ValueError", stage="warmup")
    status, found, said = probed(capsys)
    # With a broken contract, or without a step, nothing was answered; a step that fails when called is an answer.
    assert (status, found["owner"]) == (0 if "eager" in says else 3, "undetermined")
    assert said == f"Undetermined: no class fits: {says}."


def unimportable(arm, line=2):
    """As a probe on a GPU leaves it: ended in its build, in the subject's own file, before anything was read back."""
    frame = Frame(file="own.py", line=line, function="<module>", tag="subject")
    error = Link(type="ModuleNotFoundError", module="builtins", text="No module named 'flash_nonexist'", frames=[frame])
    made = record(arm, "fail", stage="build", chain=[error])
    return made.model_copy(update={"effective": {"timeline": []}})


def test_a_subject_that_no_probe_could_import_is_incomplete(root, answered, capsys):
    answered.by = lambda p: unimportable(p.arm)
    status, found, said = probed(capsys)
    assert (status, found["owner"], found["class"]) == (3, "undetermined", None)
    assert "ModuleNotFoundError: No module named 'flash_nonexist'" in said
    assert cli.main(["probe", "own.py:build", "--arm-only"]) == 3
    assert "fail at build: ModuleNotFoundError" in capsys.readouterr().out


def test_a_subject_that_some_probe_could_import_was_answered(root, answered, capsys):
    """Where only one of its probes had no step, the step itself was asked."""

    def answer(probe):
        return early(probe.arm, "odd", "ValueError", stage="warmup") if probe.watched else unimportable(probe.arm)

    answered.by = answer
    status, found, _ = probed(capsys)
    assert (status, found["owner"]) == (0, "undetermined")


def test_a_reference_that_no_call_agrees_with_accuses_nobody(root, answered, capsys):
    """Without a twin of the step's own, either of the two may be wrong; a generic twin knows nothing of it."""

    def answer(probe):
        if probe.arm.variant == "twin":
            return record(probe.arm, effective={"twin": "generic"}, caveats=["a generic one stood in"])
        return wrong_always(probe.arm)

    def wrong_always(arm):
        made = fail(arm, 900)
        check = {"call": "warm-up 1", "output": "out", "error": 1.0, "tolerance": 1e-3, "ok": False}
        facts = {"status": "wrong", "stage": "replay", "chain": []}
        facts["effective"] = {**made.effective, "deterministic": True}
        return type(made)(**{**made.model_dump(), **facts, "checks": [check]})

    answered.by = answer
    status, found, said = probed(capsys)
    assert (status, found["owner"], found["class"]) == (0, "undetermined", None)
    assert "step and reference disagree in every call, and the step has no twin" in said


def test_a_step_s_control_characters_do_not_reach_the_terminal(root, answered, capsys):
    answered.by = lambda p: early(p.arm, "\x1b]0;mine\x07", "Odd\x1b[31m", stage="warmup")
    status, found, said = probed(capsys)
    assert status == 0 and "\\x1b]0;mine\\x07" in said and "\x1b" not in said


def test_the_arm_alone_is_incomplete_where_it_hangs(root, answered, capsys):
    answered.by = lambda p: record(p.arm, "timeout", reason="no end within 60 s; it was at build")
    assert cli.main(["probe", "own.py:build", "--arm-only"]) == 3
    assert "timeout at capture: no end within 60 s; it was at build" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["~nosuchuser/x.py:build"], "subject: '~nosuchuser/x.py:build': there is no user 'nosuchuser' here"),
        (["own.py:build", "--run-dir", "~nosuchuser/x"], "--run-dir: given '~nosuchuser/x': there is no user"),
        (["/nowhere/x.py:build"], "subject: no file '/nowhere/x.py'"),
        (["own.py:build", "--question", "glue=fused"], "question: 'glue=fused' names no factor; factors are"),
        (["own.py:build", "--question", "option.glue=fused"], "question: option.glue: 'own.py:build' takes no 'glue'"),
        (["own.py:build", "--question", "option.glue=[1]"], "question: option.glue='[1]'; allowed: text, a number"),
        (["glued.py:build", "--question", "option.glu=1"], "question: option.glu: 'glued.py:build' takes no 'glu'"),
        (
            ["capturebook.subjects.decode_step:build", "--question", "option.glu=fused"],
            "question: option.glu: 'capturebook.subjects.decode_step:build' takes no 'glu'; allowed: batch, cache, ",
        ),
        (
            ["glued.py:build", "--question", "option.glue=fused", "--option", 'glue="eager"'],
            'parameter options: given {"glue": "eager"}; allowed: no glue, which option.glue of the question sets',
        ),
    ],
)
def test_bad_input_is_one_line(root, capsys, words, says):
    assert cli.main(["probe", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"capturebook probe: {says}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import os\nimport flash_nonexist\n\ndef build():\n    pass\n",
            "imported: {}:2: ModuleNotFoundError: No module",
        ),
        ("def build():\n    return 1 / 0\n", "built: {}:2: ZeroDivisionError: division by zero"),
    ],
)
def test_without_a_step_that_and_its_line_is_the_one_thing_said(root, monkeypatch, capsys, text, says):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (root / "bad.py").write_text(text)
    assert cli.main(["probe", "bad.py:build"]) == 3
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"Not probed: the step cannot be {says.format('bad.py')}")


def test_a_file_in_the_home_folder_is_found(root, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text("def build():\n    return 0\n")
    assert cli.target.locate("~/mine.py:build", root) == "~/mine.py:build"


def test_the_smallest_set_may_be_a_keyword_of_build(root, answered, capsys):
    """The fused glue fails in any capture: the search leaves each option to build's default, one after the other."""
    fused = lambda arm: arm.options.get("glue") == "fused" and arm.capture != "none"  # noqa: E731
    answered.by = lambda p: fail(p.arm, 906) if fused(p.arm) else record(p.arm)
    question = "compile=default,option.glue=fused,option.tp=4"
    assert cli.main(["probe", "glued.py:build", "--question", question, "--smallest", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["question"]["label"] == "compile=default option.glue=fused option.tp=4"
    assert found["smallest"]["factors"] == {"capture": "global", "option.glue": "fused"}
    assert found["smallest"]["no_part"] == {"compile": "default", "option.tp": 4} and found["smallest"]["minimal"]
