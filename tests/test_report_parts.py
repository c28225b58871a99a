"""The report's figures, tables and sentences, on made-up records whose outcomes are known."""

import html
import re
from xml.etree import ElementTree

import pytest

import fake_run
from capturebook.attribution.rules import RULES
from capturebook.chain.parts import Builds
from capturebook.cli import tracing
from capturebook.measure.rows import build_rows_of, sweep_points
from capturebook.records import Arm, Frame, Link, Subject
from capturebook.report import (
    classes,
    conclusions,
    figures,
    figures_build,
    figures_sweep,
    needs,
    rivals,
    summary,
    tables,
    words,
)
from capturebook.report.block import Block, link, table
from capturebook.report.html import render
from capturebook.report.run_data import RunData
from capturebook.report.sections import sections

ASKED = fake_run.arm("seen")


@pytest.fixture(scope="module")
def records():
    clock = fake_run.Clock()
    return [*fake_run.build_records(clock), *fake_run.step_records(clock), *fake_run.sweep_records(clock)]


def alt(block: Block) -> str:
    return re.search(r'alt="([^"]*)"', block.html).group(1)


def cells(block: Block) -> list[list[str]]:
    """Rows of the first table in a block, as a browser would read them."""
    html = re.search(r"<table>.*?</table>", block.html, re.S).group(0)
    rows = ElementTree.fromstring(html).iter("tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_the_matrix_shows_every_arm_with_its_outcome(records):
    rows = cells(figures.arms_matrix(records, ASKED))
    head, asked = rows[0], next(row for row in rows if row[0] == "the question's arm")
    shown = dict(zip(head[1:], asked[1:]))
    assert shown["compile none, capture global"] == "pass"
    assert shown["compile default, capture global"] == "905"
    assert shown["compile eager, capture global"] == "pass"
    assert shown["compile default, capture none"] == "pass"
    tiles = sum(cell != "" for row in rows[1:] for cell in row[1:])
    assert tiles == len(fake_run.STORY.arms)


def test_a_caveat_and_repeats_that_disagree_are_seen_in_the_matrix(records):
    by_label = {row[0]: row for row in cells(figures.arms_matrix(records, ASKED))}
    assert "pass †" in by_label["graph_break=none"]
    passed = next(r for r in records if r.arm == fake_run.arm("events") and r.role == "arm")
    other = passed.model_copy(update={"arm": ASKED, "probe": "other"})
    again = {row[0]: row for row in cells(figures.arms_matrix([*records, other], ASKED))}
    assert "905 / pass" in again["the question's arm"]


def test_each_figure_has_a_text_alternative_a_caption_and_its_data(records):
    for block in (
        figures.arms_matrix(records, ASKED),
        figures.timeline(records),
        figures_build.build_heat(build_rows_of(records)),
        figures_sweep.sweep(sweep_points(records)),
    ):
        assert len(alt(block)) > 60
        assert "<figcaption>" in block.html and "<details>" in block.html and "<tbody>" in block.html
        assert 'src="data:image/svg+xml;base64,' in block.html
        assert len(block.text.splitlines()) > 3


def test_what_the_failure_needs_follows_from_single_changes(records):
    parts = {f.name: f.part("905") for f in needs.one_factor(ASKED, records)}
    assert parts == {
        "compile": "needed",
        "capture": "needed",
        "overlap": "needed",
        "graph_break": "needed",
        "sync": "needed",
        "kernel": "no part in it",
        "tuning": "no part in it",
        "variant": "no part in it",
        "env": "no part in it",
        "warmup": "changes the error",
    }
    rows = {row[0]: row[1:] for row in cells(needs.needed(ASKED, records))}
    assert rows["overlap"] == ["true", "false ✓ pass ", "needed"]
    assert "after_fork ✗ 900" in rows["graph_break"][1]


def test_what_the_failure_needs_changes_with_the_records(records):
    """The same arms where nothing but the capture matters: every sentence must follow."""
    altered = []
    for r in records:
        if r.kind == "step" and r.role == "arm" and r.arm.variant == "step" and r.arm.capture == "global":
            r = r.model_copy(
                update={"status": "fail", "stage": "capture", "samples": {}, "chain": fake_run._chain(905)}
            )
        altered.append(r)
    parts = {f.name: f.part("905") for f in needs.one_factor(ASKED, altered)}
    assert {name for name, part in parts.items() if part == "needed"} == {"capture"}
    assert needs.needed(ASKED, []).text.startswith("The question's arm, or the arms that differ")


def test_sizes_that_the_question_leaves_open_are_no_difference(records):
    sized = [r.model_copy(update={"arm": r.arm.changed(batch=8, context=2048)}) for r in records if r.kind == "step"]
    assert needs.needed(ASKED, sized).text == needs.needed(ASKED, records).text
    assert words.where(ASKED.changed(batch=8), ASKED) == "the question's arm"
    assert words.where(ASKED.changed(batch=8), ASKED.changed(batch=4)) == "batch=8"


def test_the_build_grid_names_what_does_not_fit_or_compile(records):
    rows = build_rows_of(records)
    assert len(rows) == 24
    said = alt(figures_build.build_heat(rows))
    assert "Too large for the target: mma_decode  BLOCK_N=128 num_warps=4 on sm_120." in said
    assert "Did not compile: none" in said
    broken = [{**rows[0], "status": "fail", "reason": "died: signal 6"}, *rows[1:]]
    block = figures_build.build_heat(broken)
    assert "Did not compile: simt_decode  BLOCK_N=32 num_warps=4 on sm_80" in alt(block)
    assert "✗ fail died: signal 6" in block.text


@pytest.mark.filterwarnings("error")
def test_a_build_check_cut_off_after_its_first_target_is_drawn_too(records):
    """One column beside long names: with less room than they take, matplotlib warns and leaves the layout."""
    row = next(row for row in build_rows_of(records) if row["pinned"])
    long = [{**row, "config": f"{row['config']} {'BLOCK_H=16 ' * times}", "pinned": times > 3} for times in (1, 4, 9)]
    assert figures_build.build_heat(long).html.count("data:image/svg") == 2
    assert figures.timeline([r for r in records if r.kind == "build"][:1]).html.count("data:image/svg") == 2


def test_the_sweep_shows_all_points_and_says_why_there_are_none(records):
    rows = cells(figures_sweep.sweep(sweep_points(records)))
    assert len(rows) == 1 + 6
    median = dict(zip(rows[0], rows[1]))
    assert median["Kernel"] == "simt" and median["Batch"] == "1"
    assert median["Samples"] == "5" and float(median["Median (µs)"]) == pytest.approx(2.9 * 2.6 * 1.02, abs=0.06)
    skipped = [r.model_copy(update={"status": "skipped", "reason": "no GPU", "samples": {}}) for r in records]
    assert figures_sweep.sweep(sweep_points(skipped)).text == "No speed was measured: no GPU."


def test_evidence_holds_the_whole_exception_chain_and_links_the_log(records):
    block = tables.evidence([r for r in records if r.kind == "step"], ASKED)
    assert "905 cudaErrorStreamCaptureIsolation" in block.html
    assert "cudaErrorStreamCaptureInvalidated" in block.html, "the outer 901 belongs to the chain"
    assert re.search(r'<a href="logs/[0-9a-f]{12}\.log">log</a>', block.html)
    assert "wait 1" in block.text and "autotune 5" in block.text


def test_evidence_names_the_id_that_repro_takes_and_folds_torchs_advice(records):
    """The advice is the same for every exception, so it does not stand where the root is told."""
    steps = [r for r in records if r.kind == "step"]
    failed = next(r for r in steps if r.status == "fail")
    advice = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    link_ = failed.chain[-1].model_copy(update={"text": f"CUDA error: it broke\n{advice}\nmore of it"})
    block = tables.evidence([failed.model_copy(update={"chain": [link_]}), *steps], ASKED)
    for r in steps:
        assert f'<code class="tag id">{r.probe}</code>' in block.html
    said, _, folded = block.html.partition("<summary>torch's advice</summary>")
    assert "it broke\nmore of it" in said and advice not in said and advice in folded.partition("</details>")[0]


@pytest.mark.parametrize(
    "factors, said",
    [
        ({}, "captured, not compiled, after two calls"),
        ({"capture": "none", "warmup": "warm1"}, "neither captured nor compiled, after one call"),
        (
            {"compile": "max-autotune", "capture": "relaxed", "thread": "other", "kernel": "mma", "overlap": True},
            "captured in mode relaxed and compiled in mode max-autotune, after two calls and on another thread, "
            "with kernel=mma and overlap=true",
        ),
    ],
)
def test_an_arm_in_words(factors, said):
    assert words.used(Arm(**factors)) == said
    assert words.asked(Arm(**factors)) == f"Does the step survive when it is {said}?"


def test_a_graph_break_shows_the_subjects_line_and_folds_dynamos_explanation():
    clock = fake_run.Clock()
    reason = "Unsupported Tensor.item() call Explanation: it is not traced. Developer debug context: call_method"
    broke = {"file": "mine.py", "line": 10, "function": "scale", "call": 0, "code": "s = x.item()", "reason": reason}
    again = {"call": 1, "file": "mine.py", "line": 10, "function": "resume", "guard": "stack1 == 4.3"}
    payload = {"calls": 4, "breaks": [broke], "recompiles": [again]}
    traced = fake_run.record("trace", clock, a=Arm(compile="eager", capture="none"), payload=payload)
    block = tables.graph_breaks([traced])
    assert "<code>mine.py:10 s = x.item()</code>" in block.html
    assert "<summary>Unsupported Tensor.item() call</summary>" in block.html
    assert "at call 2, mine.py:10" in block.html and "<code>stack1 == 4.3</code> no longer holds" in block.html
    assert "Recompiles" not in tables.graph_breaks([fake_run.record("trace", clock, a=Arm(compile="default"))]).html


def test_a_trace_is_told_alike_by_the_probe_the_notebook_and_the_head(tmp_path):
    """What `probe` suspects of a line, the report's first screen and notebook 03's conclusion say too."""
    clock = fake_run.Clock()
    broke = {"file": "mine.py", "line": 17, "function": "f", "call": 0, "code": "if x.item() > 0:"}
    broke["reason"] = "Unsupported Tensor.item() call Explanation: it is not traced."
    again = {"call": 1, "file": "mine.py", "line": 10, "function": "f", "guard": "G['n'] == 1"}
    payload = {"calls": 4, "graphs": 2, "breaks": [broke], "recompiles": [again], "kernels": {}, "launches": {}}
    traced = fake_run.record("trace", clock, a=Arm(compile="eager", capture="none"), payload=payload)
    told = [line.strip() for line in tracing.told(traced)]
    wanted = [line for line in told if "mine.py:" in line or line.startswith("suspect: ")]
    assert len(wanted) == 4 and "mine.py:17: if x.item() > 0:" in wanted[0] and "900 (class K2)" in wanted[1]
    assert summary.suspected([traced]) == wanted
    _, text = conclusions.compiled_on_cpu([traced])
    assert all(line in text for line in wanted)
    failed = fake_run.record("build", clock, status="fail", subject=Subject(target="mine.py:build"), reason="it raised")
    provenance = {**fake_run.PROVENANCE, "gpu": None, "no_gpu": "no NVIDIA driver"}
    data = RunData.open(fake_run.write(tmp_path / "run", [failed, traced], provenance=provenance))
    opening = summary.opening(data)
    assert all(any(line in said for said in opening) for line in ["No kernel was compiled: it raised.", *wanted])
    page = render(data)
    head = html.unescape(page[page.index('id="verdict"') : page.index("<nav")])
    assert all(line in head for line in ["No kernel was compiled: it raised.", *wanted])


def test_the_build_check_concludes_what_its_record_says():
    assert conclusions.builds(Builds([], 0, "it raised", "fail")) == ("fail", "No build was checked: it raised.")
    assert conclusions.builds(Builds([], 0, "no kernel", "skipped"))[0] == "skipped"
    assert conclusions.builds(Builds([], 0, "too slow", "timeout"))[0] == "not_run"
    row = {"target": "sm_90", "kernel": "k", "config": "c", "status": "pass", "fits": True}
    status, text = conclusions.builds(Builds([row], 0, unseen=["one"], stopped="stopped at mine.py:17"))
    assert status == "pass" and "The recorded call stopped at mine.py:17." in text and "Not seen" in text


def test_an_exception_in_a_trace_names_the_users_line():
    clock = fake_run.Clock()
    frames = [Frame(file=f, line=n, function="f", tag=t) for f, n, t in (("mine.py", 4, "subject"), ("t", 9, "torch"))]
    link = Link(type="NameError", module="builtins", text="no such name\nmore", frames=frames)
    failed = fake_run.record("trace", clock, a=Arm(compile="eager"), status="fail", chain=[link], payload={"calls": 1})
    assert "NameError: no such name, at mine.py:4" in tracing.told(failed)[1]
    assert "NameError: no such name, at mine.py:4" in conclusions.compiled_on_cpu([failed])[1]
    assert summary.done([failed])[0].endswith("NameError: no such name, at mine.py:4.")
    skipped = failed.model_copy(update={"status": "skipped", "reason": "the step has no twin", "chain": []})
    assert "Not compiled for the CPU" in conclusions.compiled_on_cpu([failed, skipped])[1]
    twin = fake_run.record("trace", clock, a=Arm(compile="default", capture="none", variant="twin"))
    assert "Compiled for the CPU (the twin, compiled, not captured" in conclusions.compiled_on_cpu([twin])[1]


def test_a_time_is_told_as_a_multiple_of_its_floor(records):
    points = sweep_points(records)
    rows = cells(figures_sweep.sweep(points))
    told = {tuple(row[:3]): dict(zip(rows[0], row))["Times the floor"] for row in rows[1:]}
    assert float(told["mma", "live", "8"]) == pytest.approx(1.25 * 1.02, abs=0.006)
    assert float(told["simt", "live", "1"]) == pytest.approx(2.6 * 1.02, abs=0.006)
    assert conclusions.sweep(points)[1].endswith(f", {told['mma', 'live', '64']} times the floor.")


def test_every_class_that_a_rule_concludes_is_in_the_legend():
    concluded = {rule.cls for rule in RULES if rule.cls}
    assert set(classes.TITLES) == concluded
    assert {row[0] for row in cells(classes.legend())[1:]} == concluded


def test_a_status_has_one_colour_in_rivals_hazards_and_evidence(records):
    html = rivals.compared(fake_run.STORY.model_dump(), records).html
    assert '<span class="badge fail">✗ fail with 905</span>' in html
    assert '<span class="badge pass">✓ pass</span>' in html and "badge off" not in html


def test_parameters_say_what_an_empty_one_came_to():
    question = fake_run.STORY.asks().model_dump()
    rows = {row[0]: row[1:] for row in cells(tables.settings({"question": "", "error": 0, "seed": 0}, question))}
    assert rows["question"][0].startswith("taken from the hypothesis: captured and compiled, after two calls")
    assert rows["error"][0] == "taken from the hypothesis: 905" and rows["seed"][0] == "0"
    assert cells(tables.settings({"error": 0}, {**question, "error": None}))[1][1] == "not known"


def test_the_build_grid_of_four_targets_is_no_wider_than_the_page(records):
    """With the longest name that the built-in kernels have; a page of 1280 pixels leaves 1112 for it."""
    rows = [row for row in build_rows_of(records) if row["pinned"]]
    config = "BLOCK_H=64 BLOCK_N=64 PART=512 num_warps=8 num_stages=2"
    long = [{**row, "kernel": "mma_kernel heads=64 batch=128", "config": config} for row in rows]
    assert len({row["target"] for row in long}) == 4
    (width,) = re.findall(r'<img [^>]*width="(\d+)"', figures_build.build_heat(long).html)
    assert int(width) <= 1112


def test_in_jupyterlab_cells_stand_left_and_names_do_not_break():
    """JupyterLab aligns cells to the right and gives all columns of a table one width; an inline style wins."""
    shown = table(["Arm", "Why"], [["cold_live_no_overlap", "the same"]])._repr_html_()
    assert shown.count('style="text-align:left;overflow-wrap:normal"') == 4 and "table-layout:auto" in shown
    assert "style=" not in table(["Arm", "Why"], [["a", "b"]]).html


def test_text_from_elsewhere_is_escaped_and_drawn_as_it_is(records):
    hostile = '<script>alert("x")</script> $\\frac{'
    renamed = [
        {**row, "kernel": hostile, "config": "<img src=x onerror=y>"}
        for row in build_rows_of(records)
    ]  # fmt: skip
    block = figures_build.build_heat(renamed)
    assert "<script" not in block.html and "<img src=x" not in block.html
    assert "&lt;script&gt;" in block.html
    assert "<b>" not in table(["a<b>"], [["<b>"]], "<b>").html


@pytest.mark.parametrize(
    "href", ["javascript:alert(1)", "http://x/y", "//x/y", "/etc/passwd", "../../secret", "a/../../b"]
)
def test_only_files_beside_the_report_are_linked(href):
    assert "href" not in link(href, "log")
    assert link("logs/a.log", "log") == '<a href="logs/a.log">log</a>'


def test_lanes_keep_probes_apart_that_ran_at_the_same_time(records):
    probes = sorted((r for r in records if r.kind == "step"), key=lambda r: r.started)
    lanes = figures._lanes(probes)
    assert sum(map(len, lanes)) == len(probes)
    for lane in lanes:
        assert all(a.ended <= b.started for a, b in zip(lane, lane[1:]))
    assert figures.stage_seconds(probes[3:4]) == pytest.approx({"build": 0.6, "warmup": 1.2, "capture": 0.9})


def test_outcomes_in_few_words():
    clock = fake_run.Clock()
    failed = fake_run.step(Arm(), clock, 905, "02")
    died = failed.model_copy(update={"chain": [], "reason": "died: signal 9"})
    assert (words.short(failed), words.short(died)) == ("905", "fail")
    assert words.outcome(failed) == "✗ fails with 905 cudaErrorStreamCaptureIsolation"
    assert words.tally([failed, died]) == "2 fail"
    assert words.listed(["a"]) == "a" and words.listed(["a", "b", "c"]) == "a, b and c"


def test_a_run_that_was_stopped_says_so(repo):
    data = RunData.open(repo / "outputs" / "h200")
    data.info["invocations"][-1]["stopped"] = "SIGTERM"
    (notes,) = [s for s in sections(data) if s.id == "notes"]
    assert "The run was stopped by SIGTERM" in str(notes.parts[0].html)
    data.info["invocations"][-1].pop("stopped")
    (notes,) = [s for s in sections(data) if s.id == "notes"]
    assert "was stopped" not in str(notes.parts[0].html)
