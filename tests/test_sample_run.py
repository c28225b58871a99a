"""The genuine H200 run in outputs/h200: its verdict follows from its records alone, and from nothing less."""

import json
import shutil
from statistics import median

import pytest

from capturebook.attribution import explain, judge
from capturebook.records import Arm, Link, read


@pytest.fixture(scope="module")
def run(repo):
    path = repo / "outputs" / "h200"
    records, torn = read(path / "records.jsonl")
    assert records and not torn
    load = {name: json.loads((path / f"{name}.json").read_text()) for name in ("run", "hypothesis")}
    return path, load["run"], load["hypothesis"], records


def test_owner_class_and_root(run):
    _, info, hypothesis, records = run
    verdict = judge(info, hypothesis, records).to_json()
    assert (verdict["owner"], verdict["class"], verdict["root"]["code"]) == ("stack", "B5", 905)
    assert verdict["fixed"] == "fixed"


def test_verdict_does_not_need_its_file(run, tmp_path):
    from capturebook.chain import plan
    from capturebook.chain.folder import RunFolder

    path, _, _, _ = run
    copy = tmp_path / "h200"
    shutil.copytree(path, copy)
    written = json.loads((copy / "verdict.json").read_text())
    (copy / "verdict.json").unlink()
    assert plan.verdict(RunFolder.open(copy)).to_json() == written


def test_it_is_told_what_the_fix_costs_and_gains(run):
    _, info, hypothesis, records = run
    verdict = judge(info, hypothesis, records)
    (timed,) = [r for r in records if r.probe == verdict.gain["record"]]
    fixed, baseline = (median(timed.samples[name]) for name in ("fixed", "baseline"))
    sentence, overlap, gain, smallest = verdict.lines()
    assert overlap.startswith("With the fix: overlap lost")
    assert gain == (
        f"With the fix: {baseline / fixed:.2f} times as fast as compile=none ({fixed:.1f} against {baseline:.1f} us): "
        f"here compiling with the fix is {'slower' if fixed > baseline else 'faster'} than not compiling."
    )
    assert verdict.smallest["minimal"] == ("not shown" not in smallest)


def test_without_controls_it_did_not_run(run):
    _, info, hypothesis, records = run
    assert judge(info, hypothesis, [r for r in records if r.role != "control"]).owner == "not_run"


def test_without_the_compiled_and_captured_arms_it_is_undetermined(run):
    _, info, hypothesis, records = run
    kept = [r for r in records if not (r.arm and r.arm.compile != "none" and r.arm.capture != "none")]
    assert len(kept) < len(records)
    assert judge(info, hypothesis, kept).owner == "undetermined"


def test_with_another_code_it_is_another_root(run):
    _, info, hypothesis, records = run
    altered = [r.model_copy(update={"chain": [_replaced(link) for link in r.chain]}) for r in records]
    assert judge(info, hypothesis, altered).to_json()["root"]["code"] != 905


def _replaced(link: Link) -> Link:
    if link.code != 905:
        return link
    return link.model_copy(update={"code": 900, "name": "cudaErrorStreamCaptureUnsupported", "text": ""})


def test_what_the_story_needs_to_be_shown(run):
    """Each claim of the report, counted again from the records by hand."""
    _, _, _, records = run
    arms = [r for r in records if r.kind == "step" and r.role == "arm"]

    def outcomes(**factors):
        found = [r for r in arms if all(getattr(r.arm, k) == v for k, v in factors.items())]
        assert found, factors
        return {r.root.code if r.root else r.status for r in found}

    story = {"warmup": "warm2", "capture": "global", "overlap": True, "sync": "stream", "graph_break": "between"}
    assert outcomes(**story, compile="default") == {905}, "kernel, tuning, twin and the variable change nothing"
    assert outcomes(**{**story, "sync": "event"}, compile="default") == {"pass"}
    assert outcomes(**{**story, "overlap": False}, compile="default") == {"pass"}
    assert outcomes(**{**story, "graph_break": "none"}, compile="default") == {"pass"}
    assert outcomes(**{**story, "graph_break": "after_fork"}, compile="default") == {900}
    assert outcomes(**{**story, "capture": "none"}, compile="default") == {"pass"}
    assert outcomes(**story, compile="none") == {"pass"}
    assert outcomes(warmup="kernel_cold", compile="none", tuning="live", variant="step") == {900}


NAME = "TORCHINDUCTOR_CUDAGRAPHS=0"


def test_what_the_variable_changes_is_read_back(run):
    """Outcomes alone would hide that it does not switch the trees off: here each pair's readings, by hand."""
    _, info, hypothesis, records = run

    def readings(env, **factors):
        arm = Arm(**{**hypothesis["base"], **factors, "env": env})
        (found,) = [r for r in records if r.role == "arm" and r.arm == arm]
        return found.effective["trees_manager"], found.counts.get("cudagraph_recording", 0)

    off = {"TORCHINDUCTOR_CUDAGRAPHS": "0"}
    trees = {"compile": "reduce-overhead", "overlap": False, "graph_break": "none"}
    assert readings({}) == readings(off) == (False, 0)
    assert readings({}, **trees) == readings(off, **trees) == (True, 1)
    assert (
        f"No effect on the outcome: {NAME} with compile=default (fail with 905 either way; read back: cudagraph trees "
        f"off either way); {NAME} with compile=reduce-overhead (fail with RuntimeError either way; read back: "
        "cudagraph trees recorded either way: the variable does not switch them off)."
    ) in explain(judge(info, hypothesis, records), hypothesis, records)


@pytest.mark.parametrize(
    "changed, told",
    [
        (
            {"effective": {"trees_manager": False}, "counts": {}},
            "; read back: cudagraph trees recorded without it, off with it",
        ),
        ({"counts": {}}, "; read back: cudagraph trees recorded without it, on with it"),
        ({"effective": {}, "counts": {}}, ""),
    ],
)
def test_what_was_not_read_back_alike_is_not_called_alike(run, changed, told):
    _, info, hypothesis, records = run
    altered = [
        r.model_copy(update=changed) if r.arm and r.arm.env and r.arm.compile == "reduce-overhead" else r
        for r in records
    ]
    assert altered != records
    text = "\n".join(explain(judge(info, hypothesis, altered), hypothesis, altered))
    assert f"{NAME} with compile=reduce-overhead (fail with RuntimeError either way{told})." in text
    passed = [
        r.model_copy(update={"status": "pass", "chain": []}) if before is not r else r
        for before, r in zip(records, altered)
    ]
    text = "\n".join(explain(judge(info, hypothesis, passed), hypothesis, passed))
    said = told.replace("; ", " (") + (")" if told else "")
    assert f"An effect: {NAME} with compile=reduce-overhead: fail with RuntimeError becomes pass{said}." in text


def test_two_errors_of_one_number_are_told_by_their_causes(run):
    _, info, hypothesis, records = run
    verdict = judge(info, hypothesis, records)
    changes = "The error becomes another one with a single change: graph_break=after_fork gives 900"
    told = f"{changes} (B5, the same cause), warmup=kernel_cold gives 900 (B1)."
    assert told in explain(verdict, hypothesis, records)
    # Without the arm that shows the first one to be of compiling, its class is open, and none is told.
    fewer = [r for r in records if not (r.arm and r.arm.graph_break == "after_fork" and r.arm.compile == "none")]
    assert len(fewer) < len(records)
    told = f"{changes}, warmup=kernel_cold gives 900 (B1)."
    assert told in explain(judge(info, hypothesis, fewer), hypothesis, fewer)


def test_a_machine_without_a_gpu_shows_it_for_the_story_and_for_nothing_else(run):
    """Else nobody would see it: the presets of such machines ask what it answers."""
    from capturebook.attribution import load_hypothesis
    from capturebook.params import load_preset, validate
    from capturebook.report.run_data import RunData, sample_run

    path, info, _, _ = run

    def shown(preset: str) -> bool:
        params = validate(load_preset(preset))
        hypothesis = load_hypothesis(params.hypothesis)
        asked = {"question": hypothesis.asks(params).model_dump(), "parameters": params.model_dump()}
        return sample_run(RunData(path.parent / "new", {**info, **asked}, hypothesis.model_dump(), [], [])) is not None

    assert shown("cpu") and not shown("own_kernel")


def test_it_is_small_and_names_no_machine(run):
    path, _, _, _ = run
    files = [file for file in path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 4e6
    assert (path / "report.html").stat().st_size <= 2e6
    for file in files:
        text = file.read_text(errors="replace")
        assert 'File "/' not in text and "/site-packages/" not in text, f"{file.name} holds a machine's folder"
