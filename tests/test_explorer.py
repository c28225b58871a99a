"""The explorer without a browser: factors, a probe's life and end, a finished run as text."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest

import fake_run
from capturebook.params import Params
from capturebook.records import Arm, Link, arm_from, parse_factors
from capturebook.report import explorer_browse
from capturebook.report.explorer import BrowsePanel, ProbePanel
from capturebook.report.explorer_factors import UNSET, FactorControls, choices
from capturebook.report.explorer_probe import ProbeRun, probe_arguments

STANDIN = str(Path(__file__).with_name("explorer_standin.py"))
PARAMETERS = Params(subject="mod:build").model_dump()
STORY = Arm(
    kernel="mma", compile="default", overlap=True, sync="stream", graph_break="between", env={"A": "x y", "B": "1"}
)


def panel(tmp_path, mode: str, arm: Arm = STORY) -> ProbePanel:
    starts = {"the story's": arm, "the default arm": Arm()}
    return ProbePanel(PARAMETERS, starts, tmp_path, command=[sys.executable, STANDIN, mode])


def until(true, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def mentioning(word: str) -> list[int]:
    """Processes alive whose command line or working state names `word`, this test's folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(
            word in part for part in process.info["cmdline"] or []
        ):
            found.append(process.pid)
    return found


def test_every_factor_has_a_control_with_its_declared_values():
    controls = FactorControls(Arm(), {}, lambda: None).controls
    assert list(controls) == list(Arm.model_fields)
    assert choices("warmup") == list(get_args(Arm.model_fields["warmup"].annotation))
    assert choices("overlap") == [None, True, False] and choices("fullgraph") == [True, False]
    assert choices("graph_break")[0] is None and "between" in choices("graph_break")
    assert choices("batch") is None and choices("kernel") is None and choices("env") is None
    assert list(controls["dynamic"].options) == [UNSET, "true", "false"]


@pytest.mark.parametrize(
    "arm",
    [
        *(Arm(), STORY, Arm(fullgraph=True, dynamic=False, batch=8, capture="none", caches="empty")),
        Arm(options={"glue": "fused", "size": "8", "padded": True, "note": "two words", "tp": None}),
    ],
)
def test_controls_and_command_line_carry_an_arm_unchanged(arm):
    assert FactorControls(arm, {}, lambda: None).arm() == arm
    given = probe_arguments(PARAMETERS, arm)
    question = given[given.index("--question") + 1] if "--question" in given else ""
    env = dict(given[i + 1].split("=", 1) for i, word in enumerate(given) if word == "--env")
    assert arm_from({**parse_factors(question), "env": env}) == arm


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("batch", "many", "batch='many'"),
        ("batch", "0", "batch=0"),
        ("env", "A", "NAME=value"),
        ("kernel", "a,b=c", "kernel"),
    ],
)
def test_a_bad_value_is_one_line_and_cannot_be_run(tmp_path, name, text, said):
    explorer = panel(tmp_path, "pass")
    explorer.factors.controls[name].value = text
    assert (
        explorer.run.disabled
        and said in explorer.text().splitlines()[0]
        and said in explorer.chosen.value.replace("&#x27;", "'")
    )
    explorer.begin()
    assert explorer.probe is None


def test_widgets_and_text_say_the_same(tmp_path):
    explorer = panel(tmp_path, "pass")
    assert "--question kernel=mma,compile=default,overlap=true,sync=stream,graph_break=between" in explorer.text()
    explorer.start.value = "the default arm"
    assert explorer.factors.controls["compile"].value == "none" and "default arm" in explorer.text()
    explorer.factors.controls["capture"].value = "relaxed"
    assert "capture=relaxed" in explorer.text() and "capture=relaxed" in explorer.chosen.value


def test_a_probe_runs_to_its_record(tmp_path):
    explorer = panel(tmp_path, "pass", STORY.changed(env={}))
    seen = []
    explorer.twin.update = lambda: seen.append(explorer.probe.marks()["build"] if explorer.probe else None)
    explorer.begin()
    first = explorer.probe
    assert explorer.run.disabled and not explorer.stop.disabled
    explorer.begin()
    assert explorer.probe is first, "one probe at a time"
    assert first.wait(30)
    assert first.state == "ended" and first.record.arm == STORY.changed(env={}) and first.rc == 0
    assert "now" in seen and "passes" in explorer.said.value and "✓ capture 0.4 s" in explorer.progress.value
    assert (
        "stages    launch 0.0 s, build 0.2 s" in explorer.text()
        and not explorer.run.disabled
        and explorer.stop.disabled
    )


def test_stop_ends_the_child_and_every_descendant(tmp_path):
    explorer = panel(tmp_path, "hang")
    explorer.begin()
    hanging = until(lambda: list(tmp_path.glob("*/hanging")))[0]
    guard = psutil.Process(int(hanging.read_text())).parent()
    tree = until(lambda: len(found := guard.children(recursive=True)) >= 2 and found)
    assert {os.getsid(p.pid) for p in tree} != {os.getsid(guard.pid)}, "the grandchild left the session"
    until(lambda: "in capture" in explorer.said.value)
    explorer.end()
    assert explorer.stop.disabled
    assert explorer.probe.wait(30) and explorer.probe.state == "stopped"
    assert not any(p.is_running() for p in [guard, *tree]) and mentioning(str(tmp_path)) == []
    assert "stopped by you" in explorer.said.value and "red" in explorer.text() and "\x1b" not in explorer.text()


def test_the_probe_ends_when_the_kernel_is_killed_and_the_next_one_removes_its_folder(tmp_path, monkeypatch):
    code = (
        "import sys, pathlib, time; from capturebook.report.explorer_probe import ProbeRun\n"
        f"run = pathlib.Path({str(tmp_path / 'run')!r})\n"
        f"ProbeRun([sys.executable, {STANDIN!r}, 'hang', 'probe', 'm:b', '--run-dir', str(run)], run).begin()\n"
        "time.sleep(600)"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # where a killed kernel leaves its folder
    kernel = subprocess.Popen([sys.executable, "-c", code], env=env)
    hanging = tmp_path / "run" / "hanging"
    until(hanging.exists)
    until(hanging.read_text)
    tree = until(lambda: len(found := psutil.Process(kernel.pid).children(recursive=True)) >= 3 and found)
    kernel.kill()
    kernel.wait()
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in tree))
    assert len(list(tmp_path.glob("capturebook-explorer-*"))) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    following = ProbeRun([str(tmp_path / "missing")], tmp_path / "next")
    following.begin()
    assert following.wait(30) and not list(tmp_path.glob("capturebook-explorer-*"))


def test_a_real_probe_without_a_gpu_runs_on_the_cpu(tmp_path, repo, probe_server):
    """The command line itself: an uncaptured arm is run, a captured one is refused by --device and skipped without."""
    (tmp_path / "twice.py").write_text(
        "import torch\n"
        "from capturebook.subjects import Step\n"
        "def build(scale=2):\n"
        "    make = lambda seed: (torch.full((4,), float(seed)),)\n"
        "    return Step(fn=lambda x: x * scale, make_inputs=make, reference=lambda x: x + x)\n"
    )
    parameters = Params(subject=f"{tmp_path}/twice.py:build", deadline=120.0).model_dump()
    explorer = ProbePanel(
        parameters, {"called": Arm(capture="none"), "captured": Arm()}, tmp_path / "outputs", gpu=False
    )
    explorer.begin()
    assert explorer.probe.wait(120)
    record = explorer.probe.record
    assert record and record.status == "pass" and record.effective["device"] == "cpu", explorer.text()
    assert "warmup" in explorer.probe.stages and not list(explorer.probe.run.glob("probes-*"))
    explorer.start.value = "captured"
    command = [*explorer.command, *explorer._arguments(), "--run-dir", str(tmp_path / "no"), "--device", "cpu"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "capture=none" in refused.stderr
    assert not (tmp_path / "no").exists()


def test_a_refused_probe_is_told_with_its_own_words(tmp_path):
    explorer = panel(tmp_path, "refuse")
    explorer.begin()
    assert explorer.probe.wait(30)
    assert "exit 2" in explorer.said.value and "cannot be imported" in explorer.text()


def test_a_command_that_is_not_there_is_told(tmp_path):
    run = ProbeRun([str(tmp_path / "missing")], tmp_path / "run")
    run.begin()
    assert run.wait(30)
    assert not run.active and "missing" in run.headline() + run.text()


def test_browsing_a_finished_run(tmp_path):
    fake_run.gpu_run(tmp_path / "h200")
    browser = BrowsePanel(tmp_path)
    assert browser.runs.options == ("h200",) and browser.shown.value == "kind step"
    assert len(browser.table.options) == len(browser.browser.rows()) > 20
    browser.shown.value = "status fail"
    assert all(record.status == "fail" for record in browser.browser.rows())
    rows = browser.browser.rows()
    browser.table.index = next(i for i, r in enumerate(rows) if r.root.code == 905)
    text = browser.twin._text()
    assert "2. AcceleratorError [905 cudaErrorStreamCaptureIsolation]" in text, "the root comes last"
    assert text.index("[901 ") < text.index("[905 ") and "wait@capture 1" in text and "stage capture" in text
    assert f"log       {browser.browser.record.log}" in text and "  status fail" in text, "the log's end is shown"


def test_new_runs_are_found_and_torn_lines_told(tmp_path):
    browser = BrowsePanel(tmp_path / "outputs")
    assert browser.twin._text() == "no run under outputs/ yet"
    run = fake_run.cpu_run(tmp_path / "outputs" / "cpu")
    with open(run / "records.jsonl", "a") as file:
        file.write('{"torn": ')
    browser.look()
    assert browser.runs.value == "cpu" and "does not parse" in browser.twin._text()
    with pytest.raises(ValueError, match="'other' is not under outputs/; there are cpu"):
        browser.browser.open("other")
    with pytest.raises(ValueError, match="allowed: 0 to"):
        browser.browser.pick(10_000)


def test_hostile_text_is_shown_and_not_obeyed(tmp_path):
    clock = fake_run.Clock()
    evil = "<script>alert(1)</script>\x1b]0;title\x07\x1b[2J"
    link = Link(type="RuntimeError", module="builtins", text=evil)
    record = fake_run.record("step", clock, a=Arm(kernel=evil), status="fail", chain=[link], log="../secret.log")
    run = tmp_path / "run"
    fake_run.write(run, [record.model_copy(update={"log": ""})])
    (tmp_path / "secret.log").write_text("secret")
    text = explorer_browse.record_text(record, run)
    assert "secret\n" not in text + "\n" and "outside the run's folder" in text
    assert "\x1b" not in text and "\x07" not in text and "alert(1)" in text
    explorer = ProbePanel({**PARAMETERS, "subject": evil}, {"a": Arm()}, tmp_path)
    assert "<script>" not in explorer.chosen.value


def test_a_long_log_is_read_from_its_end(tmp_path):
    record = fake_run.record("step", fake_run.Clock(), a=Arm(), log="logs/long.log")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "long.log").write_text("\n".join(f"line {i}" for i in range(100_000)))
    tail = explorer_browse.log_tail(tmp_path, record)
    assert len(tail) == explorer_browse.LOG_LINES and tail[-1] == "line 99999"


def test_the_explorer_does_not_import_torch():
    code = "import sys, capturebook.report.explorer; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_notebook_runs_headless_and_says_in_words_what_its_widgets_show(tmp_path, repo):
    """By plain papermill, interactive cells and all; and as the chain runs it, without them."""
    finished = tmp_path / "outputs" / "finished"
    fake_run.gpu_run(finished)
    for name in ("notebooks", "params"):
        (tmp_path / name).symlink_to(repo / name)
    env = {**os.environ, "CAPTUREBOOK_ROOT": str(tmp_path)}
    whole, bare = tmp_path / "whole.ipynb", tmp_path / "bare.ipynb"
    source, preset = repo / "notebooks" / "explorer.ipynb", repo / "params" / "cpu.yaml"
    by_hand = [sys.executable, "-m", "papermill", str(source), str(whole), "-f", str(preset), "--no-progress-bar"]
    skip = "import papermill, sys; papermill.execute_notebook(*sys.argv[1:], skip_cells_with_tag='interactive')"
    commands = [by_hand, [sys.executable, "-c", skip, str(source), str(bare)]]
    # Stamps in a run folder's name are whole seconds: two runs at once get a folder each.
    commands[0] += ["-p", "run_dir", "outputs/by_hand"]
    running = [
        subprocess.Popen(c, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands
    ]
    for process in running:
        said = process.communicate(timeout=120)[0]
        assert process.returncode == 0 and "unknown parameter" not in said.lower(), said
    for output, widgets in ((whole, 2), (bare, 0)):
        shown = [o for cell in json.loads(output.read_text())["cells"] for o in cell.get("outputs", [])]
        kinds = [kind for o in shown for kind in o.get("data", {})]
        text = "\n".join("".join(o.get("text", "")) + "".join(o.get("data", {}).get("text/plain", "")) for o in shown)
        assert kinds.count("application/vnd.jupyter.widget-view+json") == widgets
        assert "command   capturebook probe capturebook.subjects.sparse_mla:build" in text and "none started" in text
        assert "run       finished" in text and "✗ fail 905" in text
        assert "pass: no probe started; finished is shown" in text


def test_the_notebook_is_kept_without_outputs(repo):
    cells = json.loads((repo / "notebooks" / "explorer.ipynb").read_text())["cells"]
    assert all(
        cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code"
    )
    assert not any("torch" in "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
