"""The gallery's table, its steps on a CPU, how a run is judged, cut off and recomputed, and its page."""

import ast
import html
import json
import re
import shutil
from collections import Counter

import pytest

from capturebook.attribution.recipes import RECIPES
from capturebook.cli import main
from capturebook.cli.gallery import NO_BLAME
from capturebook.gallery.case import FOLDER, OWNER, Case
from capturebook.gallery.cases import CASES, chosen
from capturebook.gallery.evaluate import Asked, with_repaired
from capturebook.gallery.exhibit import cause, classes, diff
from capturebook.gallery.run import OutOfTime
from capturebook.probes import Probe, ProbePool
from capturebook.probes.outcome import common
from capturebook.records import Arm, Frame, Link, Record, Subject, arm_from, parse_factors
from evidence.records import READ_BACK
from test_probes import Run

EVERYTHING = with_repaired(list(CASES.values()))


def test_enough_cases_and_every_class_among_them():
    counted = Counter(case.cls for case in CASES.values())
    assert set(counted) == {*(f"K{i}" for i in range(1, 7)), *(f"B{i}" for i in range(1, 10)), None}
    assert len(CASES) >= 60
    assert counted[None] >= 15
    assert sum(case.silent for case in CASES.values()) >= 12
    assert len({case.source for case in CASES.values()} - {""}) >= 10


def test_owners_are_the_design_s():
    assert set(OWNER) - {None} == set(RECIPES)
    assert {OWNER["B6"], OWNER["B7"]} == {"environment"}
    assert {OWNER["B1"], OWNER["B9"]} == {"stack"}


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.id)
def test_a_case_can_be_asked(case, repo):
    """Its build exists and says the cause, its question has an arm, and nothing of it is said twice."""
    assert (repo / case.target.partition(":")[0]).is_file()
    assert cause(case)
    assert arm_from(parse_factors(case.question))
    assert Asked.of(case, "nonce").info["question"]["follow_compiled"] is not bool(case.question)


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.fixed], ids=lambda case: case.id)
def test_a_fix_is_a_change_of_code(case):
    assert {"+", "-"} & {kind for kind, _ in diff(case)}
    assert case.repaired().cls is None


def test_every_fault_has_advice_and_a_fix_that_is_run():
    faults = [case for case in CASES.values() if case.cls]
    assert [c.id for c in faults if not c.fix] == []
    assert [c.id for c in faults if not c.fixed and not c.cured] == []


def test_public_threads_are_cited_as_people_do_and_at_least_ten_of_them():
    cited = {case.id: case.thread for case in CASES.values() if case.source}
    assert len(set(cited.values())) >= 10
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in cited.values()), cited
    assert cited["k1_new_key"] == "vllm-project/vllm#36599"
    assert CASES["k2_item"].thread and not CASES["k2_mask"].thread


def test_no_build_is_left_over():
    """Every function of the steps' files that needs no argument and returns a Step is a case or a fix."""
    used = {(case.file, case.build) for case in EVERYTHING}
    for file in FOLDER.glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            returns = ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns else ""
            if returns == "Step" and len(node.args.args) == len(node.args.defaults):
                assert (file, node.name) in used, f"{file.name}: {node.name}"


@pytest.fixture(scope="module")
def eager(tmp_path_factory, probe_server):
    """The eager step of every case that runs without a GPU: {id: record}."""
    cases = {c.target: c for c in CASES.values() if c.cpu}
    probes = [
        Probe(
            kind="step",
            subject=Subject(target=target, options=case.options),
            arm=Arm(capture="none"),
            args={"device": "cpu"},
        )
        for target, case in cases.items()
    ]
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        records = pool.run(probes)
    return {case.id: record for case, record in zip(cases.values(), records)}


def test_eager_steps_are_right_on_a_cpu(eager):
    """A planted fault must not be one of the plain call, or the gallery would show something else."""
    assert len(eager) >= 40
    odd = {name: (r.status, r.reason or (r.root and r.root.text)) for name, r in eager.items() if r.status != "pass"}
    assert set(odd) == {"k5_scribbles_on_input"}, odd
    assert eager["k5_scribbles_on_input"].status == "wrong"


class Standin:
    """In place of a ProbePool: answers a probe by its subject's name, as an H200 did. Counts what it was asked."""

    asked: list = []

    def __init__(self, run, parallel, on_event):
        self.run_folder = run

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def run(self, probes):
        if len(self.asked) >= self.enough:
            raise OutOfTime
        self.asked += [p.id for p in probes]
        records = [self.answer(p) for p in probes]
        for record in records:
            self.run_folder.append(record)
        return records

    enough = 1000

    def answer(self, probe):
        name = probe.subject.target.rpartition(":")[2]
        fields = {"status": "pass", "stage": "replay"}
        if name in ("item", "planted_item"):
            frame = Frame(file="steps/k2_host_sync.py", line=27, function="<lambda>", tag="subject")
            root = Link(type="AcceleratorError", module="torch", code=900, name="n", text="CUDA error", frames=[frame])
            top = Link(type="AcceleratorError", module="torch", code=901, name="n", text="CUDA error")
            fields = {"status": "fail", "stage": "capture", "chain": [top, root]}
        elif name == "baked_scalar":
            fields["status"] = "wrong"
        fields["effective"] = READ_BACK
        return Record(**common(probe, self.run_folder), **fields, started="", ended="", seconds=1.0)


@pytest.fixture
def standin(monkeypatch):
    monkeypatch.setattr(Standin, "asked", [])
    monkeypatch.setattr("capturebook.gallery.run.ProbePool", Standin)
    monkeypatch.setattr("capturebook.cli.gallery.gpu_uuid", lambda: "GPU-0")
    return Standin


def test_what_one_case_runs_as_a_fix_may_be_anothers_question(tmp_path):
    """Cases share records; each reads them in the role that it asked for them."""
    asked = Asked.of(CASES["clean_not_finite"], "nonce-of-this-run")
    (probe,) = [p for p in asked.wants({}) if p.role == "arm"][:1]
    record = Standin(Run(tmp_path), 1, None).answer(probe).model_copy(update={"role": "fix"})
    asked.probes[probe.id] = probe.role
    assert [r.role for r in asked.records({probe.id: record})] == ["arm"]


ONLY = ["--only", "k2_item", "--only", "clean_not_finite"]


def test_cases_are_judged_each_on_its_own_records(standin, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["gallery", *ONLY, "--run-dir", str(folder), "--json"]) == 0
    results = {r["case"]: r for r in json.loads(capsys.readouterr().out)}
    assert set(results) == {"k2_item", "k2_item.fixed", "clean_not_finite"}
    assert results["k2_item"]["got"] == {"owner": "kernel", "class": "K2"}
    assert results["k2_item"]["expected"] == results["k2_item"]["got"]
    assert results["clean_not_finite"]["got"] == {"owner": "none", "class": None}
    assert all(r["seconds"] > 0 for r in results.values())
    assert len(standin.asked) == len(set(standin.asked)) == 3 + 3 * 2, "controls are shared, nothing runs twice"


def test_a_run_is_recomputed_from_its_records_without_a_gpu(standin, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    main(["gallery", *ONLY, "--run-dir", str(folder), "--json"])
    first = capsys.readouterr().out
    monkeypatch.setattr("capturebook.gallery.run.ProbePool", None)
    assert main(["gallery", "--from", str(folder), "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out), key=str) == sorted(json.loads(first), key=str)
    lines = (folder / "records.jsonl").read_text().splitlines()
    kept = [line for line in lines if '"role":"unwatched"' not in line]
    (folder / "records.jsonl").write_text("\n".join(kept) + "\n")
    assert main(["gallery", "--from", str(folder), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "not decided: k2_item, clean_not_finite, k2_item.fixed" in captured.err


def test_a_run_that_is_cut_off_keeps_what_it_has(standin, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("capturebook.gallery.run.ACTIVE", 2)
    monkeypatch.setattr(standin, "enough", 1)
    folder = tmp_path / "run"
    assert main(["gallery", *ONLY, "--run-dir", str(folder), "--limit", "100", "--json"]) == 3
    captured = capsys.readouterr()
    assert {r["case"] for r in json.loads(captured.out)} == {"k2_item", "clean_not_finite"}
    assert "stopped after 100 s, as asked" in captured.err
    assert "not decided: k2_item.fixed" in captured.err
    kept = json.loads((folder / "gallery.json").read_text())
    assert kept["unfinished"] == ["k2_item.fixed"]
    assert len(kept["results"]) == 2


def test_a_mismatch_is_said_last_and_an_accusation_counted(standin, tmp_path, capsys, monkeypatch):
    sound = Case("clean_wrongly", "k2_host_sync:item", None, "none", question="compile=none")
    monkeypatch.setitem(CASES, "clean_wrongly", sound)
    arguments = ["gallery", "--only", "clean_wrongly", "--run-dir", str(tmp_path / "run")]
    assert main(arguments) == 4
    wrong, _, total = capsys.readouterr().out.strip().splitlines()
    assert wrong.startswith("WRONG  clean_wrongly")
    assert "0 of 1 cases as known, 1 sound ones accused" in total


def test_the_page_shows_symptom_cause_evidence_and_fix_and_loads_nothing(standin, tmp_path):
    folder = tmp_path / "run"
    main(["gallery", *ONLY, "--run-dir", str(folder)])
    text = (folder / "gallery.html").read_text()
    case = CASES["k2_item"]
    for said in (case.symptom, cause(case), case.fix, "root: 900 n: CUDA error", "on top of it: 901", "it passes."):
        assert html.escape(said) in text
    for kind, changed in diff(case):
        if kind != " ":
            assert html.escape(changed.strip(), quote=False).replace("'", "&#39;") in text
    assert re.findall(r'\b(?:src|href)="(?!#|data:|https://github\.com/)', text) == []
    assert "<script" not in text
    symptoms = text[text.index('<h2 id="symptoms">') : text.index('<h2 id="K2">')]
    (row,) = re.findall(r"<tr>(?:(?!</thead>).)*?</tr>(?=</tbody>)", symptoms, re.S)
    told = html.unescape(re.sub(r"<[^>]+>", "|", row))
    assert case.symptom in told and case.fix in told and '<a href="#k2_item">' in row and '<a href="#K2">' in row
    threads = text[text.index('<h2 id="threads">') : text.index('<h2 id="matrix">')]
    (row,) = re.findall(r"<tr>(?:(?!</thead>).)*?</tr>(?=</tbody>)", threads, re.S)
    said = re.sub(r"<[^>]+>", "|", row)
    assert all(
        part in said for part in ("NVIDIA/TensorRT#2888", case.symptom, "kernel", "K2", case.fix, "code: passes")
    )
    assert f'<a href="{case.source}">' in row and '<a href="#k2_item">' in row


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "k9"], "--only: no case 'k9'; `capturebook gallery --list` names them"),
        (["--shard", "3/2"], "--shard: given '3/2'; allowed: i/n, with i from 1 to n"),
        (["--from", "outputs/none"], "run_dir: 'outputs/none' holds no run (no run.json)"),
    ],
)
def test_bad_input_is_one_line(arguments, says, capsys):
    assert main(["gallery", *arguments]) == 2
    assert capsys.readouterr().err.strip() == f"capturebook gallery: {says}"


def test_without_a_gpu_it_lists_and_says_what_it_cannot(capsys, monkeypatch):
    monkeypatch.setattr("capturebook.cli.gallery.gpu_uuid", lambda: None)
    assert main(["gallery", "--list", "--json"]) == 0
    rows = {row["case"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(CASES)
    assert (
        rows["k2_item"]["source"] == "https://github.com/NVIDIA/TensorRT/issues/2888" and not rows["k2_mask"]["source"]
    )
    main(["gallery", "--list", "--only", "k2_item", "--only", "k2_mask"])
    item, mask = capsys.readouterr().out.splitlines()
    assert item.endswith("900 at .item()  (retells NVIDIA/TensorRT#2888)") and mask.endswith("900 at x[mask]")
    assert main(["gallery"]) == 2
    assert "needs a CUDA GPU; without one: --list, or --from RUN" in capsys.readouterr().err


def test_shards_share_out_all_cases_cheap_ones_first():
    shards = [chosen([], f"{i}/3") for i in (1, 2, 3)]
    assert sorted(c.id for part in shards for c in part) == sorted(CASES)
    assert all([c.cost for c in part] == sorted(c.cost for c in part) for part in shards)


def test_every_class_has_advice_on_the_page():
    assert set(classes()) == set(RECIPES)


def test_the_recorded_h200_run_is_recomputed(repo, tmp_path, capsys):
    """Same records, same verdicts; and no sound step is accused in them."""
    recorded = repo / "outputs" / "h200-gallery"
    if not recorded.is_dir():
        pytest.skip("outputs/h200-gallery is not in this checkout")
    folder = tmp_path / "h200-gallery"
    shutil.copytree(recorded, folder)
    main(["gallery", "--from", str(folder), "--json"])
    results = {r["case"]: r for r in json.loads(capsys.readouterr().out)}
    then = {r["case"]: r for r in json.loads((recorded / "gallery.json").read_text())["results"]}
    assert {name: r["got"] for name, r in results.items()} == {name: r["got"] for name, r in then.items()}
    assert {name for name, r in results.items() if r["expected"]["owner"] == "none"} <= {
        name for name, r in results.items() if r["got"]["owner"] in NO_BLAME
    }
