"""What notebook cells call: one run for all, controls once a start, nothing decided is run twice, the record last."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

import planted_repo
from capturebook.chain import session
from capturebook.chain.folder import NONCE, PYTHON, RUN, RunFolder
from capturebook.chain.runfiles import RunFolderError, stamp
from capturebook.params import ParameterError
from capturebook.probes import Probe, caches
from capturebook.records import Arm, Record
from evidence.records import READ_BACK


class Pool:
    """Stands for ProbePool: answers as `answers` says by role, and counts."""

    answers: dict = {}
    asked: list = []

    def __init__(self, run, parallel=0, on_event=print):
        self.run_folder = run

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Pool.asked.append("left")

    def run(self, probes):
        for probe in probes:
            Pool.asked.append(probe.role)
            status = Pool.answers.get(probe.role, "pass")
            self.run_folder.append(
                Record(
                    run=self.run_folder.name, probe=probe.id, nonce=self.run_folder.nonce, kind="step", arm=probe.arm,
                    subject=probe.subject, role=probe.role, seed=probe.seed, status=status, started=stamp(),
                    ended=stamp(), reason="planted" if status == "not_run" else "", effective=READ_BACK,
                )
            )  # fmt: skip


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    root = planted_repo.repository(tmp_path / "repo", a00_one=["pass"])
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(root))
    monkeypatch.setattr("capturebook.probes.ProbePool", Pool)
    monkeypatch.setattr(Pool, "asked", [])
    monkeypatch.setattr(Pool, "answers", {})
    yield root
    if session._current is not None:
        session._current.close()


def probes(count: int) -> list[Probe]:
    return [Probe(kind="step", arm=Arm(), seed=seed) for seed in range(count)]


def statuses(records: list[Record]) -> list[str]:
    return [record.status for record in records]


def test_alone_it_makes_its_own_run(root):
    s = session.start("02_one", {"heads": 16, "preset": "odd name/.."})
    assert s.run.path.parent == root / "outputs" and s.run.name.startswith("odd_name_-")
    assert s.params.heads == 16 and s.hypothesis["name"] == "story" and s.question.error == 905
    assert [entry["id"] for entry in s.run.info["plan"]] == [arm["id"] for arm in s.hypothesis["arms"]]
    record = s.conclude("pass", "seen")
    assert RunFolder.open(s.run.path).info["ended"]
    assert RunFolder.open(s.run.path).invocation["notebooks"] == ["02_one"]
    lines = (s.run.path / "records.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["payload"]["conclusion"] == "seen" and record.reason == ""
    assert record.notebook == "02_one" and os.path.expanduser("~") not in record.payload["executable"]


def test_names_that_nobody_declared_and_bad_values_are_refused_before_anything(root):
    with pytest.raises(ParameterError, match="parameter headz: nobody declared it; did you mean heads?"):
        session.start("02_one", {"headz": 16})
    with pytest.raises(ParameterError, match="parameter heads: given 7; allowed: one of 8"):
        session.start("02_one", {"heads": 7})
    assert list((root / "outputs").iterdir()) == []


def test_what_is_decided_is_not_run_again_and_the_order_is_the_callers():
    s = session.start("02_one", {"run_dir": "outputs/one"})
    assert [r.seed for r in s.outcomes(probes(3)[::-1])] == [2, 1, 0]
    assert [r.seed for r in s.outcomes(probes(4))] == [0, 1, 2, 3]
    assert Pool.asked == ["arm"] * 4
    assert {r.notebook for r in s.run.records()[0]} == {"02_one"}


def test_what_only_compiles_runs_again_where_its_caches_are_gone():
    first, other, last = probes(3)
    s = session.start("02_one", {"run_dir": "outputs/x"})
    s.outcomes([first, other], (first,))
    (s.run.path / caches.STORE).mkdir()
    s.outcomes([first, other, last], (first,))
    ran = [r.seed for r in s.run.records()[0]]
    (s.run.path / caches.STORE).rmdir()
    s.outcomes([first, other, last], (first,))
    assert ran == [r.seed for r in s.run.records()[0]] == [0, 1, 2], "nothing is missing"
    more = probes(4)
    assert [r.seed for r in s.outcomes(more, (first,))] == [0, 1, 2, 3]
    assert [r.seed for r in s.run.records()[0]] == [0, 1, 2, 0, 3]


def test_a_resumed_run_repeats_controls_and_what_did_not_run():
    Pool.answers = {"control": "pass", "arm": "not_run"}
    s = session.start("02_one", {"run_dir": "outputs/one"})
    assert statuses(s.controls()) == ["pass"] * 3
    assert statuses(s.controls()) == ["pass"] * 3
    assert statuses(s.outcomes(probes(2))) == ["not_run"] * 2
    assert statuses(s.outcomes(probes(2))) == ["not_run"] * 2
    nonce = s.run.nonce
    s.conclude("not_run", "planted")
    assert Pool.asked == ["control"] * 3 + ["arm"] * 2 + ["left"]

    Pool.answers, Pool.asked = {}, []
    s = session.start("03_two", {"run_dir": "outputs/one"})
    assert s.run.nonce == nonce
    s.controls()
    assert statuses(s.outcomes(probes(2))) == ["pass"] * 2
    s.conclude("pass", "")
    assert Pool.asked == ["control"] * 3 + ["arm"] * 2 + ["left"]

    Pool.asked = []
    s = session.start("03_two", {"run_dir": "outputs/one"})
    assert statuses(s.outcomes(probes(2))) == ["pass"] * 2
    assert Pool.asked == []
    assert Pool.asked.count("left") == 0


def test_what_an_earlier_start_recorded_is_said_to_be_there_and_nothing_else(capsys):
    """Notebook 03 asks again for the arms that 02 ran moments ago: that is no news."""
    s = session.start("02_one", {"run_dir": "outputs/one"})
    s.outcomes(probes(2))
    s.outcomes(probes(2))
    s.conclude("pass", "")
    assert "already recorded" not in capsys.readouterr().out
    session.start("03_two", {"run_dir": "outputs/one"}).outcomes(probes(3))
    assert "2 of 3 probes are already recorded in this run" in capsys.readouterr().out


def test_a_compilation_is_announced_with_the_time_it_may_take(capsys):
    compiled = Arm(compile="default", capture="none")
    traces = [Probe(kind="trace", arm=compiled, label=f"step {n}", deadline=50.0 + n) for n in range(5)]
    traces = [Probe(**{**vars(p), "seed": n}) for n, p in enumerate(traces)]
    s = session.start("02_one", {"run_dir": "outputs/one"})
    s.outcomes([*probes(1), Probe(kind="step", arm=compiled)])
    assert "compiling" not in capsys.readouterr().out or s.gpu, "without a GPU that one is skipped at once"
    s.outcomes(traces[:1])
    assert "compiling step 0 (up to 50 s)" in capsys.readouterr().out
    s.outcomes(traces)
    assert "compiling 4 arms (up to 54 s each)" in capsys.readouterr().out


def test_another_parameter_than_the_runs_is_refused():
    session.start("02_one", {"run_dir": "outputs/one"}).conclude("pass", "")
    with pytest.raises(RunFolderError, match="made with another parameter heads: 8 now, 64 in the run"):
        session.start("02_one", {"run_dir": "outputs/one", "heads": 8})


def test_starting_again_in_one_kernel_gives_the_run_back_first():
    first = session.start("02_one", {"run_dir": "outputs/one"})
    assert first.run.held
    again = session.start("02_one", {"run_dir": "outputs/one"})
    assert again.run.held and not first.run.held and again.run.nonce == first.run.nonce


def test_pursue_ends_when_nothing_more_can_help():
    """Controls that pass where they must fail: the judge asks for no arm's repeats for ever."""
    s = session.start("03_two", {"run_dir": "outputs/one"})
    verdict = s.pursue()
    assert verdict.owner in ("not_run", "undetermined")
    count = len(Pool.asked)
    assert s.pursue() == verdict and len(Pool.asked) == count
    assert s.verdict() == verdict
    assert json.loads((s.run.path / "verdict.json").read_text())["owner"] == verdict.owner


def test_pursue_ends_when_no_record_counts(monkeypatch):
    """A broken job whose records carry no configuration read back: its probes are not asked for without end."""
    monkeypatch.setattr(sys.modules[__name__], "READ_BACK", {})
    s = session.start("03_two", {"run_dir": "outputs/one"})
    with pytest.raises(RuntimeError, match=r"^none of \d+ probes left a record that counts: .*effective"):
        s.pursue()


def test_under_the_chain_it_is_the_chains_run(monkeypatch):
    mine = session.start("02_one", {"run_dir": "outputs/one"})
    monkeypatch.setenv(RUN, str(mine.run.path))
    monkeypatch.setenv(NONCE, mine.run.nonce)
    monkeypatch.setenv(PYTHON, sys.executable)
    monkeypatch.setattr(session, "_current", None)
    s = session.start("03_two", {"run_dir": "outputs/one"})
    s.conclude("pass", "")
    assert mine.run.held and RunFolder.open(mine.run.path).info["ended"] is None
    monkeypatch.setenv(NONCE, "another")
    with pytest.raises(session.NotebookError, match="is not the nonce of outputs/one"):
        session.start("03_two", {"run_dir": "outputs/one"})


def test_a_notebook_alone_by_plain_papermill(root, tmp_path):
    """The command anyone has: parameters from a preset's file, no chain, the folder that run_dir names."""
    notebook = planted_repo.notebook(root / "notebooks", "02_one", "s.conclude('pass', 'alone')")
    done = subprocess.run(
        [sys.executable, "-m", "papermill", str(notebook), str(tmp_path / "out.ipynb"), "--no-progress-bar"]
        + ["-f", str(root / "params" / "h200.yaml"), "-p", "run_dir", "outputs/alone"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        env=planted_repo.environment(root),
    )
    assert done.returncode == 0, done.stderr
    assert "unknown" not in done.stderr.lower()
    run = RunFolder.open("outputs/alone")
    assert run.info["parameters"]["preset"] == "h200" and run.info["ended"]
    assert [(r.notebook, r.status) for r in run.records()[0]] == [("02_one", "pass")]
    assert nbformat.read(tmp_path / "out.ipynb", 4).cells[-1].execution_count
