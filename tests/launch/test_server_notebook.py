"""notebooks/server_launch.ipynb by plain papermill: a server that works, with a comparison, and one that does not."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from standin import COMPARISON, LAUNCH, written

import fake_run
from capturebook.launch import LaunchFileError, entries
from capturebook.launch.servers.session import start
from capturebook.report.run_data import RunData

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "server_launch.ipynb"
here_only = pytest.mark.parametrize("bench", ["here"], indirect=True)


def executed(bench, launch_file, comparison="", run_dir="") -> dict[str, str]:
    """Cell id -> its text outputs, of the notebook as plain papermill runs it."""
    out = bench.root / "out.ipynb"
    values = {"launch_file": str(launch_file), "comparison": str(comparison), "host": bench.host or "",
              "concurrency": [1, 2], "requests": 3, "output_tokens": 4, "run_dir": run_dir}  # fmt: skip
    command = [sys.executable, "-m", "papermill", str(NOTEBOOK), str(out), "--no-progress-bar", "-y", yaml.dump(values)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=bench.root)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(out, as_version=4)
    texts = {}
    for cell in notebook.cells:
        shown = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", [])]
        texts[cell.id] = "\n".join(shown)
    return texts


@here_only
def test_it_shows_stages_timeline_load_and_comparison(bench):
    comparison = written(bench, arms=COMPARISON["arms"][1:], rivals=COMPARISON["rivals"][1:2])
    sound = {**LAUNCH, "args": ["{port}"], "phases": {"up": "stand-in is up"}}
    bench.write("sound.yaml", yaml.safe_dump(sound))
    fake_run.cpu_run(bench.root / "outputs/mine")
    shown = executed(bench, bench.root / "local/sound.yaml", comparison, "outputs/mine")
    assert all(f"{name} " in shown["launched"] for name in ("connect", "identity", "ready"))
    assert "owner is: the program" in shown["launched"] and "pass" in shown["outcome"]
    assert "after" in shown["phases"] and "ready." in shown["phases"]
    assert "Concurrency" in shown["sweep"] and "/metrics" in shown["sweep"]
    assert "stopped by its recorded process" in shown["stop"]
    assert "compiled" in shown["compared"] and "fail with 905" in shown["compared"]
    assert "contradicted" in shown["compared"]
    assert shown["conclusion"].startswith("Ready after") and "tok/s, at concurrency" in shown["conclusion"]
    assert {entry.info["state"] for entry in entries()} == {"ended"}
    # The launch with its load, and two arms, of which one got ready and was asked.
    assert len(RunData.open(bench.root / "outputs/mine").launches) == 5


@here_only
def test_a_failed_capture_is_shown_with_its_root(bench):
    written(bench)
    shown = executed(bench, bench.root / "local/server.yaml")
    assert "905 cudaErrorStreamCaptureIsolation" in shown["outcome"] and "K3 or B5" in shown["outcome"]
    assert "not ready (fail)" in shown["phases"]
    assert "No load was asked" in shown["sweep"] and shown["stop"] == "'nothing of it runs'"
    assert shown["conclusion"].startswith("Not ready: ") and "--enable-torch-compile" in shown["conclusion"]


@here_only
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("concurrency", [], r"concurrency: given \[\]; allowed: one or more"),
        ("concurrency", [0], "concurrency, requests, output_tokens: given 0; allowed: 1 to 1024"),
        ("requests", "8", "requests: given '8'; allowed: int"),
        ("launch_file", "none.yaml", "none.yaml', which is no file"),
    ],
)
def test_bad_parameters_are_one_line(bench, name, value, says):
    values = {"launch_file": "server.yaml", "host": "", "concurrency": [1], "requests": 1, "output_tokens": 1,
              "comparison": "", "run_dir": ""}  # fmt: skip
    with pytest.raises(LaunchFileError, match=says):
        start({**values, name: value})
