"""The command line: bad input is one line and exit 2 with nothing started; the answer on stdout, all else on stderr."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fake_run
import planted_repo
from capturebook import cli, paths
from capturebook.cli.target import locate
from capturebook.params import Params, preset_names
from capturebook.params.declared import KERNELS


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty repository, with the working directory beside it."""
    root = planted_repo.repository(tmp_path / "repo", a00_one=["pass"])
    (root / "own.py").write_text("def build(width=8):\n    return 0\n")
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(root))
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path / "here")
    return root


def test_paths_are_of_the_working_directory_then_of_the_repository(root, tmp_path):
    here = tmp_path / "here"
    assert paths.given("params") == root / "params"  # what is not here, but there
    assert paths.given("new") == here / "new"
    (here / "params").mkdir()
    assert paths.given("params") == here / "params"
    assert paths.from_here(here / "params") == "params"
    assert paths.from_here(root / "params") == str(root / "params")
    assert paths.resolve("params") == root / "params"


LONG = "z" * 300
"""Longer than a file's name may be."""

DEEP = "[" * 5000 + "]" * 5000
"""JSON nested deeper than it can be read."""

BAD = [
    ("run nope", "preset: given 'nope', which is no file; allowed: "),
    ("run cpu --set headz=8", "parameter headz: nobody declared it; did you mean heads?"),
    ("run cpu --set heads=7", "parameter heads: given 7; allowed: one of 8, 16"),
    ("run cpu --set heads", "--set: given 'heads'; allowed: name=value"),
    ("run cpu --set heads=8 --set heads=16", "--set: heads is given twice; allowed: once"),
    (
        'run cpu --set options={"heads":8}',
        'parameter options: given {"heads": 8}; allowed: 64, as the parameter heads says',
    ),
    (
        'run cpu --set question=overlap=false --set options={"overlap":true}',
        'parameter options: given {"overlap": true}; allowed: false, as the question says',
    ),
    ("run cpu --set hypothesis=nope", "hypothesis: given 'nope', which is no file; allowed: "),
    ("run cpu --set question=warmup=hot", "question"),
    ("run cpu --set subject=nope.py:build", "subject: no file 'nope.py' in "),
    ("run cpu --only 00,9", "--only: given '9'; allowed: 00"),
    ("run cpu --run-dir=", "--run-dir: given ''; allowed: a folder; without it, one is made under outputs/"),
    ("run cpu --run-dir params", "run_dir: 'params' is not empty and holds no run.json"),
    ("probe build", "subject: 'build'; allowed: pkg.mod:build or file.py:build"),
    ("probe nope.py:build", "subject: no file 'nope.py' in "),
    ("probe own.py:biuld", "subject: 'own.py:biuld': the file defines no 'biuld'"),
    ("probe no_such_package.mod:build", "no module 'no_such_package' in "),
    ("probe capturebook.nope:build", "no module 'capturebook.nope' in "),
    ("probe own.py:build --option width=eight", "--option: given 'width=eight'; allowed: NAME=JSON"),
    ("probe own.py:build --option nosuch=1", "options: 'own.py:build' takes no 'nosuch'; allowed: width"),
    ('run cpu --set options={"peers":["x"]}', "options: peers: 'x'; allowed: flashmla, flashmla_prefill, "),
    ('run cpu --set options={"shapes":["wide"]}', "options: shapes: 'wide'; allowed: flash, pro, hca, "),
    ('run indexer --set options={"key_format":"fp4"}', "options: key_format: 'fp4'; allowed: bf16, fp8"),
    ('run cpu --set options={"nosuch":1}', "options: 'capturebook.subjects.sparse_mla:build' takes no 'nosuch'"),
    ("probe own.py:build --option width", "--option: given 'width'; allowed: NAME=VALUE"),
    ("probe own.py:build --question kernel=mma", "question: 'own.py:build' takes no 'kernel'; allowed: none"),
    ("run cpu --set subject=own.py:build --set question=batch=8", "question: 'own.py:build' takes no 'batch'"),
    ("probe own.py:build --option width=1 --option width=2", "--option: width is given twice; allowed: once"),
    ("probe own.py:build --env A=1 --env A=2", "--env: A is given twice; allowed: once"),
    ("probe own.py:build --option width=NaN", 'parameter options: given {"width": NaN}; allowed: a mapping of names'),
    ("probe own.py:build --option width=1e999", 'parameter options: given {"width": Infinity}; allowed: '),
    ("probe own.py:build --option width=" + DEEP, "--option: given 'width=[[["),
    ("probe own.py:build --env A=\udcff", "parameter env: given "),
    ('run cpu --set options={"a":1e999}', 'parameter options: given {"a": Infinity}; allowed: '),
    ("run cpu --set options=" + DEEP, "parameter options: given [[["),
    ("probe own.py:build --env A", "--env: given 'A'; allowed: NAME=VALUE"),
    ("probe own.py:build --question compile=fast", "compile"),
    ("probe own.py:build --deadline 0", "parameter deadline: given 0.0; allowed: a number from 1 to 3600"),
    ("probe own.py:build --smallest --arm-only", "--smallest: given with --arm-only; allowed: one of the two"),
    ("verdict nope", "here/nope' holds no run"),
    ("report nope", "here/nope' holds no run"),
    ("build --targets sm_7", "sm_7"),
    ("build --targets sm_90a", "--targets: given 'sm_90a'; allowed: a list of 1 to 6 "),
    ("build --targets 90,90", "--targets: given '90,90'; allowed: a list of 1 to 6 "),
    ("run cpu --set =5", "--set: given '=5'; allowed: name=value"),
    ("run cpu --only ,", "--only: given ','; allowed: 00"),
    ("run cpu --set question=compile=default,compile=none", "question: compile is given twice"),
    (
        'run cpu --set kernels=["zzz"]',
        'parameter kernels: given ["zzz"]; allowed: simt, mma, gluon, auto with the built-in',
    ),
    (f"run cpu --set preset={LONG}", "parameter preset: given "),
    (f"run cpu --set hypothesis={LONG}", "hypothesis: given "),
    (f"run cpu --run-dir {LONG}", "run_dir: given "),
    ("run cpu --run-dir /proc/x", "run_dir: given '/proc/x': "),
    ("run cpu --run-dir /sys/x", "run_dir: given '/sys/x': "),
    ("probe own.py:build --run-dir /proc/x", "run_dir: given '/proc/x': "),
    (f"probe own.py:build --run-dir {LONG}", "run_dir: given "),
    (f"run {LONG}.yaml", f"preset: given '{LONG}.yaml'"),
    (f"run {LONG}", f"preset: given '{LONG}'"),
    ("run own.py", "preset: given 'own.py', which is a file, but no YAML mapping (.yaml, .yml); allowed: "),
    (f"probe {LONG}.py:build", f"subject: no file '{LONG}.py' in "),
    (f"verdict {LONG}", f"{LONG}' holds no run"),
    (f"report {LONG}", f"run_dir: given '{LONG}': File name too long"),
    (f"launch {LONG}.yaml", f"launch file: given '{LONG}.yaml'"),
]


@pytest.mark.parametrize(
    ("words", "said"), BAD, ids=[words.replace(LONG, "LONG").replace(DEEP, "DEEP") for words, _ in BAD]
)
def test_bad_input_is_one_line_and_starts_nothing(root, capsys, words, said):
    assert cli.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err
    assert err.count("\n") == 1 and err.startswith(f"capturebook {words.split()[0]}: ")
    assert list((root / "outputs").iterdir()) == []


@pytest.mark.parametrize("words", ["doctor", "launches", "attach x", "stop x", "verdict x", "build", "run cpu"])
def test_a_root_that_is_no_checkout_is_one_line(tmp_path, monkeypatch, capsys, words):
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    assert cli.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"CAPTUREBOOK_ROOT: '{tmp_path}' holds no notebooks/ and params/\n")
    assert err.count("\n") == 1


NEST = "[" * 9999 + "]" * 9999

DAMAGE = [
    ("hypothesis.json", None), ("hypothesis.json", "{"), ("hypothesis.json", "[]"),
    ("run.json", "[]"), ("run.json", "null"), ("run.json", '{"schema_version": 1}'), ("records.jsonl", "folder"),
    ("report.html", "folder"), ("hypothesis.json", "{}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "holds"), DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_run_folder_is_one_line_naming_the_file(root, capsys, name, holds):
    run = fake_run.write(root / "outputs" / "x", [])
    (run / name).unlink(missing_ok=True)
    if holds == "folder":
        (run / name).mkdir()
    elif holds is not None:
        (run / name).write_text(holds)
    report_only = name == "report.html" or holds == "{}"  # a verdict needs neither
    for command in ("report",) if report_only else ("verdict", "report"):
        assert cli.main([command, "outputs/x"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and name in err


@pytest.mark.parametrize(
    ("name", "value"),
    [("question", {}), ("question", {"arm": {}, "x": 1}), ("provenance", {}), ("started", "yesterday"),
     ("started", "2026-11-30T12:00:00"), ("invocations", [{}]), ("provenance", {**fake_run.PROVENANCE, "gpu": {}}),
     ("provenance", {**fake_run.PROVENANCE, "gpu": {"name": "x", "sm": "ninety"}}), ("nonce", None),
     ("provenance", {**fake_run.PROVENANCE, "torch_cuda": "none"}), ("provenance", {**fake_run.PROVENANCE, "torch": 2}),
     ("code", 7)],
)  # fmt: skip
def test_a_run_json_that_lacks_what_its_readers_read_is_damaged(root, capsys, name, value):
    run = fake_run.write(root / "outputs" / "x", [])
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, name: value}))
    for command in ("verdict", "report"):
        assert cli.main([command, "outputs/x"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "outputs/x/run.json is damaged: " in err and name in err


def test_a_full_disk_ends_a_command_in_one_line_and_leaves_the_old_report(root, capsys, monkeypatch):
    run = fake_run.write(root / "outputs" / "x", [])
    (run / "report.html").write_text("old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    assert cli.main(["report", "outputs/x"]) == 3
    said = capsys.readouterr().err
    assert said == "capturebook report: outputs/x/report.html cannot be written: No space left on device\n"
    assert (run / "report.html").read_text() == "old"


def test_a_name_with_a_nul_is_no_file(root, capsys):
    fake_run.write(root / "outputs" / "x", [fake_run.step(fake_run.arm("events"), fake_run.Clock(), None, "")])
    assert cli.main(["repro", "outputs/x", "", "-o", "z\0z.py"]) == 2
    assert "--output: given 'z\\x00z.py': a NUL in it; allowed: a file's name" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["repro outputs/x 0 -o new.py", "gallery --from outputs/x"])
def test_records_that_are_a_folder_are_one_line_for_every_reader(root, capsys, words):
    (fake_run.write(root / "outputs" / "x", []) / "records.jsonl").mkdir()
    assert cli.main(words.split()) == 2
    assert capsys.readouterr().err.endswith("records.jsonl is a folder; allowed: a file\n")


@pytest.mark.parametrize("plan", [[{"id": "seen", "arm": {}}], [], [5]])
def test_a_gallery_is_not_recomputed_from_another_kind_of_run(root, capsys, plan):
    run = fake_run.write(root / "outputs" / "x", [])
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "plan": plan}))
    assert cli.main(["gallery", "--from", "outputs/x"]) == 2
    assert "repo/outputs/x', which is no gallery's run" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_command_as_an_exception_and_its_action_is_put_back(monkeypatch, number, status):
    before, cleaned = signal.getsignal(number), []

    def hit(args):
        try:
            os.kill(os.getpid(), number)
            time.sleep(30)
        finally:
            cleaned.append(number)

    monkeypatch.setattr(cli.look, "doctor", hit)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor"])
    assert (stopped.value.code, cleaned, signal.getsignal(number)) == (status, [number], before)


def test_a_hangup_that_is_ignored_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(cli.look, "doctor", lambda args: os.kill(os.getpid(), signal.SIGHUP) or 0)
        assert cli.main(["doctor"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("words", ["", "nope", "run cpu --expect stacks", "probe", "verdict"])
def test_what_is_no_command_exits_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words.split())
    assert stopped.value.code == 2


def test_targets_are_looked_up_where_the_command_was_started_then_in_the_repository(root, tmp_path, monkeypatch):
    here = tmp_path / "here"
    assert locate("own.py:build", here) == "own.py:build"
    (here / "own.py").write_text("build = print\n")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    assert locate("own.py:build", here) == f"{here}/own.py:build"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("own.py:build", here) == "~/here/own.py:build"
    assert locate(f"{root}/own.py:build", here) == "own.py:build"


def test_modules_are_found_without_being_imported_and_children_will_find_them(root, tmp_path):
    package = tmp_path / "here" / "planted_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')\n")
    (package / "steps.py").write_text("from torch import *\n")
    assert locate("planted_package.steps:build", tmp_path / "here") == "planted_package.steps:build"
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "here")
    assert locate("capturebook.subjects.sparse_mla:build", tmp_path) == "capturebook.subjects.sparse_mla:build"


def test_a_probe_without_a_gpu_is_not_run(root, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.main(["probe", "own.py:build", "--json", "--option", "width=16", "--env", "A=1"]) == 3
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["owner"], found["class"]) == ("not_run", None)
    assert "whose fault a failure is, and its class" in found["undecided"]
    assert (found["trace"]["status"], found["trace"]["root"]["type"]) == ("fail", "SubjectError")
    # own.py's build breaks the contract: that, and where, is the one thing said after the progress.
    assert err.strip().splitlines()[-1].startswith("Not probed: the step cannot be built: own.py:1: SubjectError: ")
    assert "Not decided" not in err
    (run,) = (root / "outputs").iterdir()
    assert found["run"] == str(root / "outputs" / run.name)
    info = json.loads((run / "run.json").read_text())
    assert (info["parameters"]["options"], info["parameters"]["env"]) == ({"width": 16}, {"A": "1"})
    assert info["ended"] and info["question"]["follow_compiled"]
    before = (run / "verdict.json").read_bytes()
    (run / "verdict.json").unlink()

    assert cli.main(["verdict", found["run"], "--json"]) == 0
    assert capsys.readouterr().out.encode() == before
    assert not (run / "verdict.json").exists()


@pytest.mark.parametrize("target", list(KERNELS))
def test_a_subject_that_comes_with_it_is_probed_without_naming_its_kernels(root, capsys, monkeypatch, target):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.main(["probe", target, "--arm-only", "--json", "--run-dir", "x"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "skipped"


def test_the_arm_alone(root, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    question = "compile=default,fullgraph=true,warmup=cold"
    assert cli.main(["probe", "own.py:build", "--arm-only", "--json", "--question", question, "--run-dir", "x"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["role"], record["arm"]["fullgraph"]) == ("skipped", "arm", True)
    assert record["subject"] == {"target": "own.py:build", "options": {}}
    assert Path("x", "records.jsonl").read_text().count("\n") == 1


def test_params_and_doctor_as_json(root, capsys):
    assert cli.main(["params", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(Params.model_fields)
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] in preset_names() and found["why"] and found["provenance"]["code"]


def test_params_write_brings_the_cells_up_to_date(root, capsys):
    path = root / "notebooks" / "00_one.ipynb"
    before = path.read_text()
    path.write_text(before.replace("heads: int", "heads_: int"))
    assert cli.main(["params", "--write"]) == 0
    assert json.loads(path.read_text()) == json.loads(before)
    assert "notebooks/00_one.ipynb" in capsys.readouterr().out


def test_the_command_line_imports_no_torch():
    code = "import sys; from capturebook import cli; import capturebook.chain.session; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
