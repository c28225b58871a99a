"""The run folder: what it refuses, what a resumed run keeps, and that there is one writer at a time."""

import errno
import json
import os
import subprocess
import sys

import pytest

from capturebook.chain.folder import RunFolder
from capturebook.chain.runfiles import RunFolderError, claim, fresh, stamp
from capturebook.records import Arm, Question, Record, probe_id
from evidence.records import READ_BACK

GPU = {"name": "Planted GPU", "id": "0a", "sm": "sm_90"}
FACTS = {"code": "c0de", "gpu": GPU, "driver": "580.1", "torch": "2.11.0", "triton": "3.6.0", "no_gpu": "",
         "driver_cuda": "13.0", "torch_cuda": "13.0"}  # fmt: skip
STORY = {"name": "planted", "rivals": []}


class Parameters:
    """Stands for a validated Params: the run folder only reads what it dumps."""

    def __init__(self, **values):
        self.values = {"run_dir": "", "preset": "planted", "heads": 64, **values}

    def model_dump(self) -> dict:
        return dict(self.values)


def create(path, **values) -> RunFolder:
    return RunFolder.create(path, Parameters(**values), STORY, Question(), ["plan"], facts=FACTS)


def resume(path, parameters=None, story=STORY, question=None, **facts) -> RunFolder:
    question = question or Question()
    return RunFolder.resume(path, parameters or Parameters(), story, question, facts={**FACTS, **facts})


def record(run: RunFolder, seed: int, status: str, role: str = "arm", nonce: str = "") -> Record:
    reason = "planted" if status in ("not_run", "skipped") else ""
    return Record(
        run=run.name, probe=probe_id("step", None, Arm(), seed), nonce=nonce or run.nonce, kind="step", role=role,
        seed=seed, status=status, reason=reason, effective=READ_BACK, started=stamp(), ended=stamp(),
    )  # fmt: skip


def test_a_new_run_holds_what_its_verdict_will_need(tmp_path):
    run = create(tmp_path / "a" / "run")
    info = json.loads((run.path / "run.json").read_text())
    assert info["parameters"]["heads"] == 64
    assert info["question"] == json.loads(json.dumps(Question().model_dump()))
    assert (info["plan"], info["code"], info["ended"], info["run"]) == (["plan"], "c0de", None, "run")
    assert len(info["nonce"]) == 16 and len(info["invocations"]) == 1
    assert json.loads((run.path / "hypothesis.json").read_text()) == STORY
    assert json.loads((run.path / "environment.json").read_text()) == FACTS
    run.finish()
    assert RunFolder.open(run.path).info["ended"] == RunFolder.open(run.path).invocation["ended"] is not None


def test_two_runs_have_two_nonces(tmp_path):
    assert create(tmp_path / "a").nonce != create(tmp_path / "b").nonce


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty and holds no run.json; allowed: a new or an empty folder"):
        create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        create(tmp_path / "run")


def test_a_run_is_not_made_anew_over_another(tmp_path):
    run = create(tmp_path / "run")
    run.finish()
    with pytest.raises(RunFolderError, match="already holds a run"):
        create(tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").nonce == run.nonce


def test_what_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(RunFolderError, match="holds no run"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text('{"schema_version": 1, "ru')
    with pytest.raises(RunFolderError, match="is damaged"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text('{"schema_version": 99}')
    with pytest.raises(RunFolderError, match="has schema 99; this version reads 1"):
        RunFolder.open(tmp_path)


def test_resume_keeps_the_nonce_and_pass_wrong_fail(tmp_path):
    run = create(tmp_path / "run")
    for seed, status in enumerate(("pass", "wrong", "fail", "timeout", "not_run", "skipped")):
        run.append(record(run, seed, status))
    run.append(record(run, 6, "pass", role="control"))
    run.append(record(run, 7, "pass", nonce="another"))
    with open(run.records_path, "ab") as file:
        file.write(record(run, 8, "pass").to_line().encode()[:200])
    run.close()
    again = resume(tmp_path / "run")
    assert again.nonce == run.nonce
    assert sorted(r.seed for r in again.decided().values()) == [0, 1, 2]
    assert len(again.info["invocations"]) == 2
    records, torn = again.records()
    assert [r.seed for r in records] == [0, 1, 2, 3, 4, 5, 6]
    assert any("line 9 does not parse" in line for line in torn)
    assert any("another run's nonce" in line for line in torn)


OTHERWISE = {"run": "x", "kind": "gain", "samples": {"fixed": [2.0, 2.0], "baseline": [3.0, 3.0]}}
ASIDE = [
    ({"schema_version": 2}, "has schema 2; this version reads 1"),
    ({"schema_version": None}, "has schema None; this version reads 1"),
    ({"effective": {}}, "has come to verify and holds no effective configuration read back"),
    ({"effective": {"timeline": [{"stage": "launch", "s": 0.1}]}}, "no effective configuration"),
    (
        {"effective": {**READ_BACK, "suspect_variables": "none"}},
        "effective.suspect_variables: Input should be a valid d",
    ),
    ({"effective": {**READ_BACK, "threads": "none"}}, "effective.threads"),
    ({"graph": {"missing": "none"}}, "graph.missing"),
    ({"payload": {"trivial": "no"}}, "payload.trivial"),
    ({"payload": {"x": float("inf")}}, "not JSON compliant"),
    ({"seconds": float("inf")}, "seconds: Input should be a finite number"),
    ({"samples": {"call": []}}, "samples.call is empty"),
    ({"samples": {"call": [2.0, 0.0]}}, "samples.call: 0.0 is no time in us"),
    ({"samples": {"call": [-1e308, 1.0]}}, "samples.call: -1e+308 is no time in us"),
    ({**OTHERWISE, "samples": {}}, "samples of a gain are {'fixed': 0, 'baseline': 0}"),
    ({**OTHERWISE, "samples": {"fixed": [2.0, 2.0], "baseline": [3.0]}}, "samples of a gain are"),
    ({"arm": 5}, "arm: "),
]


def test_a_record_that_does_not_count_is_set_aside_by_its_name_and_reason(tmp_path):
    run = create(tmp_path / "run")
    good = json.loads(record(run, 0, "pass").model_copy(update={"stage": "verify"}).to_line())
    lines = [{**good, "probe": f"odd{i}", **change} for i, (change, _) in enumerate(ASIDE)]
    lines += [good, {**good, **OTHERWISE}, {**good, "status": "fail", "stage": "capture", "effective": {}}]
    run.records_path.write_text("".join(json.dumps(line).replace("Infinity", "1e999") + "\n" for line in lines))
    records, aside = run.records()
    assert [r.status for r in records] == ["pass", "pass", "fail"], "the last died there, and said no more"
    for number, (line, (change, words)) in enumerate(zip(aside, ASIDE, strict=True)):
        assert words in line and f"line {number + 1} " in line and line.endswith("its probe counts as missing"), change
        assert "\n" not in line and ("schema" in words or f"record odd{number})" in line)
    chain = [{"type": "E", "module": "m", "text": "t"}]
    run.records_path.write_text(json.dumps({**lines[-1], "chain": chain}) + "\n")
    assert run.records()[0] == [] and "has come to capture" in run.records()[1][0], "an exception leaves them"


@pytest.mark.parametrize("name", ["records.jsonl", "hypothesis.json"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, name):
    create(tmp_path / "run").finish()
    where = tmp_path / "run" / name
    where.unlink(missing_ok=True)
    os.mkfifo(where)
    with pytest.raises(RunFolderError, match=f"{name} (is a device, pipe|cannot be read: it is no regular file)"):
        RunFolder.open(tmp_path / "run").hypothesis()
    where.unlink()
    where.symlink_to(where)
    with pytest.raises(RunFolderError, match=f"{name} (is a link that leads nowhere|cannot be read: Too many levels)"):
        RunFolder.open(tmp_path / "run").hypothesis()


def test_a_later_record_replaces_an_earlier_one(tmp_path):
    run = create(tmp_path / "run")
    run.append(record(run, 0, "timeout"))
    run.append(record(run, 0, "pass"))
    run.append(record(run, 1, "pass"))
    run.append(record(run, 1, "not_run"))
    assert [r.seed for r in run.decided().values()] == [0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": Parameters(heads=32)}, "another parameter heads: 32 now, 64 in the run"),
        ({"story": {**STORY, "rivals": ["new"]}}, "another hypothesis"),
        ({"question": Question(error=905)}, "another question"),
        ({"code": "beef"}, "another code tree: 'beef' now, 'c0de' in the run"),
        ({"gpu": {**GPU, "name": "Other"}}, "another GPU: 'Other 0a' now, 'Planted GPU 0a' in the run"),
        ({"gpu": {**GPU, "id": "0b"}}, "another GPU"),
        ({"gpu": None}, "another GPU: None now"),
        ({"driver": "581"}, "another driver: '581' now, '580.1' in the run"),
        ({"torch": "2.13.0"}, "another torch: '2.13.0' now, '2.11.0' in the run"),
        ({"triton": None}, "another triton"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_resume_refuses_what_is_not_the_recorded_one(tmp_path, change, words):
    create(tmp_path / "run").finish()
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunFolderError) as refused:
        resume(tmp_path / "run", **change)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_the_folder_may_be_named_otherwise_and_moved(tmp_path):
    create(tmp_path / "run", run_dir="outputs/one").finish()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert resume(tmp_path / "moved", Parameters(run_dir="../moved")).held


HOLD = """
import sys
sys.path.insert(0, sys.argv[2])
import test_folder
run = test_folder.resume(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends_even_by_kill(tmp_path):
    create(tmp_path / "run").finish()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run"), os.path.dirname(__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunFolderError, match=f"is in use by process {holder.pid}, since "):
        resume(tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").name == "run"
    holder.kill()
    holder.communicate()
    assert resume(tmp_path / "run").held


def test_json_is_written_whole_or_not_at_all(tmp_path):
    run = create(tmp_path / "run")
    run.write_json("verdict.json", {"owner": "stack"})
    with pytest.raises(ValueError):
        run.write_json("verdict.json", {"gain": float("nan")})
    assert json.loads((run.path / "verdict.json").read_text()) == {"owner": "stack"}
    assert not list(run.path.glob(".verdict*"))


def test_records_name_the_notebook_they_were_made_in(tmp_path):
    run = create(tmp_path / "run")
    run.notebook = "02_graph_capture"
    run.append(record(run, 0, "pass"))
    assert run.records()[0][0].notebook == "02_graph_capture"


def test_resume_clears_what_a_killed_pool_left(tmp_path):
    create(tmp_path / "run").finish()
    (tmp_path / "run" / "probes-x" / "scratch").mkdir(parents=True)
    resume(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.is_dir()) == ["logs", "notebooks"]


def test_runs_that_begin_in_the_same_second_get_a_folder_each(tmp_path, monkeypatch):
    """A name is taken by making the folder, even where another process took it after we looked."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params").mkdir()
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    looked = []

    def overtaken(preset):
        path = fresh(preset)
        if not looked:
            path.mkdir(parents=True)
        looked.append(path)
        return path

    monkeypatch.setattr("capturebook.chain.runfiles.fresh", overtaken)
    mine = claim("planted")
    assert looked[0] != mine == looked[1] and mine.is_dir()
    assert create(mine).path == mine
    assert len({mine, claim("planted"), claim("planted")}) == 3


@pytest.mark.parametrize("name", ["records.jsonl", "verdict.json", "report.html"])
def test_a_run_whose_file_is_a_folder_is_not_resumed(tmp_path, name):
    create(tmp_path / "run").finish()
    (tmp_path / "run" / name).mkdir()
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunFolderError, match=f"{name} is a folder; allowed: a file"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    create(tmp_path / "run").finish()

    def read_only(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.replace", read_only)
    for attempt in (lambda: create(tmp_path / "new"), lambda: resume(tmp_path / "run")):
        with pytest.raises(RunFolderError, match="Read-only file system; allowed: a folder that can be made and writ"):
            attempt()
    assert list((tmp_path / "new").iterdir()) == [], "half a run would be in the way of the next start"


def test_a_full_disk_leaves_a_file_as_it_was_and_is_named_with_it(tmp_path, monkeypatch):
    run = create(tmp_path / "run")
    before = (run.path / "run.json").read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    for name, write in (("run.json", run.save), ("records.jsonl", lambda: run.append(record(run, 1, "pass")))):
        with pytest.raises(OSError, match=f"No space left on device: .*{name}"):
            write()
    assert (run.path / "run.json").read_bytes() == before
    assert sorted(p.name for p in run.path.iterdir() if p.name[0] == ".") == []


@pytest.mark.parametrize("name", ["\udcff", "\udcc3\udcbc"], ids=["no UTF-8", "another locale's"])
def test_a_folder_whose_name_is_no_text_is_refused_before_it_is_made(tmp_path, name):
    for attempt in (create, RunFolder.open):
        with pytest.raises(RunFolderError, match=r"run_dir: given '.*\\udc.*'; allowed: a path that is text in UTF-8"):
            attempt(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
