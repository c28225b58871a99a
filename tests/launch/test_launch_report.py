"""Launches in a run's report, and the page of a launch or a comparison: stages, timeline, class, links that lead."""

import re
from pathlib import Path

import pytest
from launch_bench import READY, here_only, serve
from standin import COMPARISON, written

import fake_run
from capturebook import cli
from capturebook import launch as launching
from capturebook.chain.folder import RunFolder
from capturebook.chain.runfiles import RunFolderError
from capturebook.launch.store import into_run
from capturebook.report import html, launch_page
from capturebook.report.run_data import RunData


def rows(page: str, section: str) -> list[list[str]]:
    """The cells, as text, of the first table after a section's heading."""
    return cells_of(page.partition(f'id="{section}"')[2].partition("<tbody>")[2].partition("</tbody>")[0])


def cells_of(body: str) -> list[list[str]]:
    """Of every table in a piece of a page, as text, row by row."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[" ".join(re.sub(r"<[^>]+>", "", cell).split()) for cell in row] for row in cells]


def leads(page: Path) -> list[str]:
    """The page's links to files; each must be there."""
    found = re.findall(r'href="([^"#:]+)"', page.read_text())
    assert all((page.parent / name).is_file() for name in found), found
    return found


@here_only
def test_a_runs_report_shows_what_was_launched_for_it(bench):
    run = fake_run.cpu_run(bench.root / "outputs" / "mine")
    before = RunData.open(run).probes
    good = serve(bench, name="good server", phases={"up": "^listening"})
    lost = bench.script("#!/bin/sh\nsh -c 'exit 3' | cat\n", result={"log": "^RESULT"}, name="t.sh")
    hostile = bench.launch(command=["echo", "<script>alert(1)</script>"], result={"log": "never"})
    taken = serve(bench, port=good.payload["port"], name="late")
    launching.stop(good.run, bench.events.append)
    for record in (good, lost, hostile, taken):
        into_run(record, run)
    page = html.build(run)
    text = page.read_text()
    shown = {row[0]: row for row in rows(text, "launches")}
    assert len(rows(text, "launches")) == 4 and shown["good server"][2:5] == ["✓ pass", "", ""]
    assert shown["t"][4].startswith("C7: ") and shown["late"][2:4] == ["– not run", "port"]
    assert shown["late"][4] == "C9: another process owns the port and would answer in our place"
    assert f"port {good.payload['port']} is held by process" in shown["late"][5] and "port: auto" in shown["late"][6]
    # Behind each row its stages, and for what was started its timeline; the one refused at the port has none.
    assert text.count("identity</th>") == 4 and "up at " in text and "No timeline: nothing was started." in text
    # Not entered: what the refused one would have gone through next, and nothing of the others.
    ahead = [row[0] for row in cells_of(text) if row and "not entered" in row[1]]
    assert ahead == ["start", "identity", "log", "ready"]
    assert "<script>" not in text and "&lt;script&gt;alert(1)" in text
    # What was launched is no probe, and changes no count.
    assert RunData.open(run).probes == before and f"{len(before)} probes:" in text
    assert len([name for name in leads(page) if name.startswith("logs/launch-")]) == 3
    assert str(bench.root) not in text
    # On a narrow screen rows are blocks, and figures are drawn anew.
    launched = text.partition('id="launches"')[2].partition("</section>")[0]
    assert launched.count('class="scroll stack"') == 4 + 1 + 3 and launched.count("<picture>") == 3
    kept, torn = RunFolder.open(run).records()
    assert not torn and len([record for record in kept if record.kind == "launch"]) == 4


@here_only
def test_a_run_that_is_not_there_gets_no_launch(bench):
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    with pytest.raises(RunFolderError, match="holds no run"):
        into_run(record, "outputs/none")


@here_only
def test_a_comparison_has_a_page_of_its_own(bench, monkeypatch, capsys):
    path = written(bench, load=None, arms=COMPARISON["arms"][1:], rivals=COMPARISON["rivals"][1:2])
    # `run` runs a comparison too.
    done = bench.cli("run", str(path), cwd=bench.root)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0 and "report: outputs/comparisons/ab-" in out, err
    assert "kernel: 0 held, 2 contradicted" in out
    page = bench.root / out.strip().splitlines()[-1].removeprefix("report: ")
    text = page.read_text()
    assert [row[0] for row in rows(text, "rivals")] == ["mma", "compiled"]
    assert rows(text, "rivals")[0][1] == "DELAY=0, without --compile"
    assert [row[0] for row in rows(text, "launches")] == ["ab-mma, round 1", "ab-compiled, round 1"]
    assert "905 cudaErrorStreamCaptureIsolation" in text and len(leads(page)) == 2
    monkeypatch.chdir(bench.root)
    assert cli.main(["report", str(page.parent.relative_to(bench.root))]) == 0
    assert capsys.readouterr().out == f"report: {page.relative_to(bench.root)}\n"


@here_only
def test_a_launch_has_a_page_of_its_own(bench, capsys):
    record = serve(bench, ready={**READY, "expect": "something else"}, deadline=1)
    page = launch_page.build(launching.Entry.open(record.run).path)
    assert "◷ timeout: not ready within 1 s" in page.read_text() and leads(page) == ["logs/program.log"]
    assert cli.main(["report", f"outputs/launches/{bench.ids()[0]}-not"]) == 2
    assert "holds no run" in capsys.readouterr().err


@here_only
def test_a_stopped_servers_page_says_first_what_came_of_it(bench):
    record = serve(bench, name="mine", phases={"up": "^listening"})
    launching.attach(record.run, bench.events.append)
    before = {entry["phase"]: entry["at"] for entry in record.payload["timeline"]}
    assert list(before) == ["start", "up", "answered"]
    stopped = launching.stop(record.run, bench.events.append)
    page = launch_page.build(launching.Entry.open(record.run).path).read_text()
    head = page.partition('id="outcome"')[2].partition("</ul>")[0].partition("<li>")[2].partition("</li>")[0]
    at, served = before["answered"], stopped.payload["seconds"] - before["answered"]
    assert head == f"✓ pass: ready after {at:g} s, answered, served {served:.1f} s, stopped by you (exit status 143)"
    seen = {row[0]: row[5] for row in rows(page, "launches")}
    assert list(seen) == ["mine", "mine: attach", "mine: stop"] and seen["mine"] == f"answered after {at:g} s"
    # It got past the phase of its start that its log named last.
    assert "in phase" not in seen["mine: stop"]
    # Who comes later did not see the phases begin: it has them from who did.
    for later in launching.Entry.open(record.run).records()[1:]:
        assert {entry["phase"]: entry["at"] for entry in later.payload["timeline"]} == before
    assert page.count(f"start at 0.00 s, up at {before['up']:.2f} s, answered at {before['answered']:.2f} s") == 3
