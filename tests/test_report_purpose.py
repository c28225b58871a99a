"""Runs to which no question of capture was put: their report opens with what they measured, and misses no verdict."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import fake_run
import planted_repo
from capturebook.cli import main
from capturebook.report import html as report
from capturebook.report import run_data, summary
from test_report_html import Outline


def asked_for(path: Path, records: list, notebook: str = "04_throughput_sweep", **facts) -> run_data.RunData:
    """A run of one notebook with these records of it; `facts` go to run.json."""
    (own,) = [r for r in fake_run.notebook_records({}) if r.notebook == notebook]
    fake_run.write(path, [*records, own])
    info = json.loads((path / "run.json").read_text()) | facts
    (path / "run.json").write_text(json.dumps(info))
    return run_data.RunData.open(path)


def test_a_run_of_the_sweep_alone_opens_with_what_it_measured(tmp_path, capsys):
    """No question was put to it: an undecided verdict would be a reproach. Asked for probes too, it is one."""
    points = fake_run.sweep_records(fake_run.Clock())
    data = asked_for(tmp_path / "run", points)
    page = Outline(report.render(data)).text
    head = page[: page.index("Evidence")]
    assert "Not decided" not in page and "Rivals" not in page and "no probe of a step" not in page
    assert "No question of capture was put to this run, so no verdict was asked for" in head
    assert summary.opening(data)[0] == "Throughput only: 6 points measured on an NVIDIA H200."
    best = 64 / ((2.0 + 64 * 0.9) * 1.25 * 1.02) * 1e6  # 64 rows in the faster kernel's median
    assert f"Most tokens a second: {best:,.0f} by mma at batch 64" in head and summary.opening(data)[2] in head

    timed = points[0].model_copy(update={"payload": {**points[0].payload, "left": {"simt": "not here"}}, "samples": {}})
    cut = replace(data, records=[timed, *points[1:]], info={**data.info, "invocations": [{"stopped": "SIGTERM"}]})
    assert summary.headline(cut) == "Throughput only: 4 of 6 points measured on an NVIDIA H200 before it was stopped"
    assert summary.opening(cut)[-1].startswith("The run was stopped by SIGTERM")

    assert main(["verdict", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.endswith("note: this run was for throughput alone; no question of capture was put to it\n")

    both = [{"notebooks": ["02_graph_capture", "04_throughput_sweep"]}]
    planned = replace(data, info={**data.info, "invocations": both})
    assert summary.headline(planned) == "Not decided: the evidence did not run"
    assert report._head(planned)["label"] == "Verdict" and report._head(planned)["rows"][0][0] == "Question"
    probed = replace(data, records=[*data.records, fake_run.step(fake_run.arm("events"), fake_run.Clock(), None, "")])
    assert probed.purpose == ""
    counted = fake_run.record("counters", fake_run.Clock(), payload={"kernels": {}})
    assert replace(data, records=[*data.records, counted]).purpose == "throughput", "they are of the sweep's points"


def test_builds_that_fit_and_spill_are_counted():
    rows = [{"kernel": "k", "config": f"N={n}", "target": "sm_90", "fits": True, "spills": n} for n in (0, 8, 768, 16)]
    assert summary.builds(rows) == (
        "4 kernel configurations compiled for sm_90: 4 of 4 builds fit, 3 of them with registers spilled "
        "(most: k N=768 on sm_90, 768 bytes)."
    )


def test_a_run_of_the_build_check_opens_with_it(tmp_path):
    """Alone, and beside the sweep; of the fake run's 24 builds one is too large."""
    clock = fake_run.Clock()
    data = asked_for(
        tmp_path / "run", [*fake_run.build_records(clock), *fake_run.sweep_records(clock)], "01_kernel_build"
    )
    assert summary.opening(replace(data, records=[r for r in data.records if r.kind != "sweep"])) == [
        "Builds only: 23 of 24 fit.",
        "No question of capture was put to this run, so no verdict was asked for: of the notebooks it ran "
        "01_kernel_build alone.",
        "6 kernel configurations compiled for sm_80, sm_90, sm_100 and sm_120: 23 of 24 builds fit, "
        "1 of them with registers spilled (most: simt_decode BLOCK_N=64 num_warps=4 on sm_80, 96 bytes).",
    ]
    both = replace(data, info={**data.info, "invocations": [{"notebooks": ["01_kernel_build", "04_throughput_sweep"]}]})
    assert summary.headline(both) == "Builds and throughput only: 6 points measured on an NVIDIA H200"
    assert "23 of 24 builds fit" in summary.opening(both)[2] and "Most tokens a second" in summary.opening(both)[3]


def test_a_run_of_the_sweep_alone_that_could_not_says_why(tmp_path):
    why = "needs a CUDA GPU, and this machine has none"
    points = [
        r.model_copy(update={"status": "skipped", "reason": why, "samples": {}})
        for r in fake_run.sweep_records(fake_run.Clock())
    ]
    here = {**fake_run.PROVENANCE, "gpu": None, "no_gpu": "no NVIDIA driver"}
    data = asked_for(tmp_path / "run", points, provenance=here)
    lines = summary.opening(data)
    assert lines[0] == "Throughput only, and no point was measured."
    assert lines[-1] == "3 of 3 probes skipped or not run: no CUDA GPU: no NVIDIA driver." and len(lines) == 3
    refused = {"status": "fail", "reason": "ValueError: peers: 'x'; allowed: sdpa"}
    own = [r.model_copy(update=refused) for r in data.records if r.kind == "notebook"]
    assert summary.opening(replace(data, records=own))[-1] == (
        "04_throughput_sweep ended with fail: ValueError: peers: 'x'; allowed: sdpa."
    )


@pytest.mark.parametrize(
    ("command", "headline"), [("build", "Builds only: 23 of 24 fit."), ("tune", "Throughput only")]
)
def test_a_run_that_a_command_made_opens_with_what_it_measured(tmp_path, command, headline):
    """Its records name no notebook; without the note it would miss a verdict that nobody asked for."""
    made = (fake_run.build_records if command == "build" else fake_run.sweep_records)(fake_run.Clock())
    path = fake_run.write(tmp_path / "run", [r.model_copy(update={"notebook": ""}) for r in made])
    data = run_data.RunData.open(path)
    assert summary.opening(data)[0].startswith("Not decided")
    noted = replace(data, info={**data.info, "invocations": [{"command": command}]})
    first, second, *_ = summary.opening(noted)
    assert first.startswith(headline) and second.endswith(
        f"no verdict was asked for: it was made by capturebook {command}."
    )


def test_build_notes_that_it_made_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(planted_repo.repository(tmp_path / "repo", a00_one=["pass"])))
    monkeypatch.setattr("capturebook.probes.ProbePool", lambda run, on_event: nullcontext(SimpleNamespace(run=None)))
    nothing = SimpleNamespace(rows=[], unseen=[], failed=[], left=0, stopped="")
    monkeypatch.setattr("capturebook.measure.build.build_rows", lambda *args, **more: nothing)
    assert main(["build"]) == 0
    (made,) = (tmp_path / "repo" / "outputs").iterdir()
    assert run_data.RunData.open(made).purpose == "builds"
