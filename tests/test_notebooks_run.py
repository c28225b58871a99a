"""Every numbered notebook, by the chain and papermill, with the cpu preset: one run of a few minutes, several asserts.

One target instead of four keeps it short; nothing else differs from what `make investigate` does on a machine without a
GPU. A GPU that is there is hidden, so that the run is the same everywhere.
"""

import os
import subprocess
import sys

import nbformat
import pytest

from capturebook.measure.rows import build_rows_of, sweep_points
from capturebook.paths import repository
from capturebook.report import run_data, summary

REPO = repository()

pytestmark = pytest.mark.timeout(580)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(the ended command line, its run): `capturebook run cpu`."""
    path = tmp_path_factory.mktemp("chain") / "run"
    command = [sys.executable, "-m", "capturebook", "run", "cpu", "--set", "targets=[90]", "--run-dir", str(path)]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=REPO, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (path / "run.json").exists(), done.stderr
    return done, run_data.RunData.open(path)


def of_kind(data, kind: str) -> list:
    return [r for r in data.records if r.kind == kind]


def test_it_ends_well_and_says_what_was_not_decided(finished):
    done, data = finished
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    opening = summary.opening(data)
    assert opening[0] == "Not decided on this machine." and opening[1].startswith("Why: no CUDA GPU")
    assert all(line in lines for line in opening), "the terminal says what the report opens with"
    page = (data.path / "report.html").read_text(encoding="utf-8")
    assert page.index(opening[0].rstrip(".")) < page.index("Rivals: predicted and seen")


def test_every_notebook_concluded_with_the_chains_interpreter(finished):
    _, data = finished
    books = {r.notebook: r for r in of_kind(data, "notebook")}
    assert sorted(books) == [path.stem for path in sorted((REPO / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
    skipped = {name for name, r in books.items() if r.status == "skipped"}
    assert skipped == {"02_graph_capture", "04_throughput_sweep"}, {n: (r.status, r.reason) for n, r in books.items()}
    assert all(books[name].status == "pass" for name in set(books) - skipped)
    assert all("needs a CUDA GPU" in books[name].reason for name in skipped)
    assert len({r.payload["executable"] for r in books.values()}) == 1
    assert all(r.payload["conclusion"] for r in books.values())


def test_kernels_were_compiled_and_interpreted(finished):
    _, data = finished
    rows = build_rows_of(data.records)
    assert rows and {row["target"] for row in rows} == {"sm_90"} and all(row["status"] == "pass" for row in rows)
    mma = [row for row in rows if row["kernel"].startswith("mma_kernel")]
    assert mma and all(any("MMA" in name for name in row["instructions"]) for row in mma)
    interpreted = of_kind(data, "interpret")
    assert all(r.status == "pass" and 0 < r.payload["error"] <= r.payload["tolerance"] for r in interpreted)
    with_combine = {(r.subject.options["kernel"], r.payload["splits"] > 1) for r in interpreted}
    assert with_combine == {(kernel, more) for kernel in ("mma", "simt") for more in (True, False)}
    assert all(r.payload["operands"] == "fp32" and "BLOCK_N=" in r.payload["config"] for r in interpreted)


def test_the_step_was_compiled_for_the_cpu_and_its_breaks_counted(finished):
    _, data = finished
    seen = {(r.arm.variant, r.arm.graph_break): r for r in of_kind(data, "trace")}
    assert all(r.status == "pass" and r.checks for r in seen.values())
    breaks = {key: r.effective["graph_breaks"] for key, r in seen.items()}
    assert breaks == {("step", None): 0, ("twin", None): 0, ("step", "between"): 1}
    first, *others = sorted(seen.values(), key=lambda r: r.started)
    compiled = {r.probe: r.effective["inductor_cache_files_at_start"] for r in seen.values()}
    assert compiled[first.probe] == 0
    assert all(compiled[r.probe] > 0 for r in others if r.started >= first.ended), "what was compiled is compiled once"


def test_what_needs_a_gpu_is_skipped_with_its_reason(finished):
    _, data = finished
    steps = of_kind(data, "step")
    arms = data.hypothesis["arms"]
    assert len([r for r in steps if r.role == "arm"]) >= len(arms)
    assert all(r.status == "skipped" and "GPU" in r.reason for r in steps)
    points = sweep_points(data.records)
    assert points and all(p["status"] == "skipped" and p["us"] == [] for p in points)
    assert data.verdict["owner"] == "not_run" and data.verdict["class"] is None


def test_the_executed_notebooks_are_rendered_and_hold_no_error(finished):
    _, data = finished
    for path in sorted((data.path / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        kinds = {output.output_type for cell in notebook.cells for output in cell.get("outputs", [])}
        assert "error" not in kinds, path.name
        page = path.with_suffix(".html").read_text(encoding="utf-8")
        assert "<script" not in page and f"notebooks/{path.stem}.html" in (data.path / "report.html").read_text()


def test_nothing_is_left_behind(finished):
    _, data = finished
    left = [p.name for p in data.path.iterdir() if p.name.startswith(("probes-", "."))]
    assert left == []
