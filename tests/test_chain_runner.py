"""The runner against planted deaths: what a notebook did is what the outcome says, and no process outlives it."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from capturebook.chain.folder import RunFolder
from capturebook.chain.runner import Chain
from capturebook.chain.stopping import Stop
from capturebook.records import Question

HELPER = """
import os, sys, time, signal, subprocess
from capturebook.chain.folder import RunFolder, notebook_probe
from capturebook.chain.runfiles import stamp
from capturebook.records import Record, append
run = RunFolder.open(os.environ["CAPTUREBOOK_RUN"])
def conclude(notebook, status="pass", nonce=run.nonce):
    append(run.records_path, Record(run=run.name, probe=notebook_probe(notebook), nonce=nonce, kind="notebook",
        notebook=notebook, status=status, reason="" if status == "pass" else "planted reason",
        payload={"conclusion": "planted conclusion"}, started=stamp(), ended=stamp()))
"""


class Parameters:
    """Stands for a validated Params: the run folder only stores what it dumps."""

    def __init__(self, **values):
        self.values = {"run_dir": "", "preset": "planted", **values}

    def model_dump(self) -> dict:
        return dict(self.values)


NONE = dict.fromkeys(("gpu", "no_gpu", "driver", "driver_cuda", "torch_cuda"))
FACTS = {**NONE, "code": "c0de", "torch": "0", "triton": "0"}


def new_run(path: Path) -> RunFolder:
    return RunFolder.create(path, Parameters(), {"name": "planted"}, Question(), facts=FACTS)


def plant(folder: Path, name: str, *cells: str) -> Path:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in (HELPER, *cells)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["language_info"] = {"name": "python"}
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def take(tmp_path: Path, *cells: str, cell_timeout: float = 60, name: str = "02_planted"):
    """Run one planted notebook; its outcome and the run."""
    run = new_run(tmp_path / "run")
    chain = Chain(run, {}, cell_timeout=cell_timeout, out=io.StringIO())
    (outcome,) = chain.run([plant(tmp_path / "notebooks", name, *cells)])
    run.finish()
    return outcome, run


def last(run: RunFolder):
    return [r for r in run.records()[0] if r.kind == "notebook"][-1]


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_notebook_that_concludes_passes(tmp_path):
    """Cells for people, tagged interactive, are left out; the executed notebook names no folder of this machine."""
    source = plant(tmp_path / "n", "02_planted", "raise SystemError('a widget, headless')", "conclude('02_planted')")
    notebook = nbformat.read(source, 4)
    notebook.cells[1].metadata["tags"] = ["interactive"]
    nbformat.write(notebook, source)
    run = new_run(tmp_path / "{run}")
    (outcome,) = Chain(run, {"heads": 8}, out=io.StringIO()).run([source])
    assert (outcome.status, outcome.conclusion) == ("pass", "planted conclusion")
    executed = nbformat.read(run.path / "notebooks" / "02_planted.ipynb", 4)
    assert executed.cells[-1].execution_count == 3
    where = executed.metadata["papermill"]
    assert not os.path.isabs(where["input_path"]) and not os.path.isabs(where["output_path"])


def test_its_own_last_record_speaks_for_the_notebook(tmp_path):
    cell = "conclude('02_planted'); conclude('02_planted', 'skipped'); conclude('03_another')"
    outcome, run = take(tmp_path, cell)
    assert (outcome.status, outcome.reason) == ("skipped", "planted reason")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("os._exit(3)", "its kernel exited by itself with code 3 in cell 1 (os._exit(3))"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "its kernel was killed by signal 9 in cell 1"),
        ("sys.exit(0)", "a cell ended the kernel: SystemExit"),
        ("1 / 0", "ZeroDivisionError: division by zero in cell 1 (1 / 0)"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "papermill did not finish in cell 1"),
        ("os.write(1, b'garbage\\xff{\"rc\": 0}\\n' * 9); os.write(2, b'\\xfe')", "it left no record"),
        ("conclude('02_planted', nonce='stale')", "it left no record; its record carries another run's nonce"),
        ("open(run.records_path, 'ab').write(b'{\"run')", "it left no record; record 1 of its records is torn"),
    ],
)  # fmt: skip
def test_deaths_are_told_as_what_they_are(tmp_path, cell, words):
    outcome, run = take(tmp_path, cell)
    assert outcome.status == "fail"
    assert words in outcome.reason
    assert (last(run).status, last(run).reason) == ("fail", outcome.reason)


def test_a_death_after_the_conclusion_is_no_pass(tmp_path):
    outcome, run = take(tmp_path, "conclude('02_planted')", "os._exit(1)")
    assert outcome.status == "fail"
    assert outcome.reason.endswith("after its conclusion")
    assert last(run).status == "fail"


def test_a_record_of_an_earlier_invocation_does_not_count(tmp_path):
    run = new_run(tmp_path / "run")
    source = plant(tmp_path / "n", "02_planted", "conclude('02_planted')")
    assert Chain(run, {}, out=io.StringIO()).run([source])[0].status == "pass"
    plant(tmp_path / "n", "02_planted", "pass")
    (outcome,) = Chain(run, {}, out=io.StringIO()).run([source])
    assert (outcome.status, outcome.reason) == ("fail", "all cells ran, but it left no record")


def test_a_hang_is_a_timeout_and_ends_with_its_processes(tmp_path):
    """The cell holds a process of its own session and hangs: both end."""
    cell = f"""
p = subprocess.Popen(["sleep", "600"], start_new_session=True)
open({str(tmp_path / "pid")!r}, "w").write(str(p.pid))
time.sleep(600)
"""
    outcome, run = take(tmp_path, cell, cell_timeout=2)
    assert outcome.status == "timeout"
    assert outcome.reason.startswith("no end after 2 s in cell 1 (p = subprocess.Popen")
    assert gone(int((tmp_path / "pid").read_text()), 1)


def test_grandchildren_that_outlive_are_ended_and_named(tmp_path):
    """Twice forked, own session, stdout kept open: nothing ties it to the kernel but its ancestry."""
    out = io.StringIO()
    run = new_run(tmp_path / "run")
    cell = f"""
subprocess.run(["sh", "-c", "setsid sleep 600 & echo $! > {tmp_path / "pid"}"])
conclude('02_planted')
"""
    (outcome,) = Chain(run, {}, out=out).run([plant(tmp_path / "n", "02_planted", cell)])
    assert outcome.status == "pass"
    assert "ended 1 processes that outlived it: sleep" in out.getvalue()
    assert gone(int((tmp_path / "pid").read_text()), 1)


def test_a_failed_notebook_does_not_stop_the_next(tmp_path):
    run = new_run(tmp_path / "run")
    notebooks = [
        plant(tmp_path / "n", "02_planted", "os._exit(0)"),
        plant(tmp_path / "n", "05_planted", "conclude('05_planted')"),
    ]
    out = io.StringIO()
    outcomes = Chain(run, {}, out=out).run(notebooks)
    assert [(o.notebook, o.status) for o in outcomes] == [("02_planted", "fail"), ("05_planted", "pass")]
    assert "\r" not in out.getvalue()
    assert all(
        line[8] == "Z" and line.split()[1] in ("02_planted", "05_planted") for line in out.getvalue().splitlines()
    )


DRIVER = """
import sys
from pathlib import Path
from capturebook.chain.folder import RunFolder
from capturebook.chain.runner import Chain
run = RunFolder.open(sys.argv[1])
chain = Chain(run, {})
outcomes = chain.run([Path(p) for p in sys.argv[2:]])
print([o.status for o in outcomes], chain.stop.signum, flush=True)
"""

HANG = """
p = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open(run.path / "pids.part", "w") as f:
    f.write(f"{os.getpid()} {os.getppid()} {p.pid}")
os.rename(run.path / "pids.part", run.path / "pids")
import ctypes
ctypes.PyDLL(None).sleep(600)  # holds the GIL
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=["TERM", "INT", "KILL"])
def test_signals_to_the_chain_leave_no_process(tmp_path, signum):
    """The cell holds the GIL in a native call, which a SIGTERM to papermill would not end."""
    run = new_run(tmp_path / "run")
    run.close()
    notebooks = [
        plant(tmp_path / "n", "02_planted", HANG),
        plant(tmp_path / "n", "05_planted", "conclude('05_planted')"),
    ]
    (tmp_path / "driver.py").write_text(DRIVER)
    chain = subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py"), str(run.path), *map(str, notebooks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # Ignored by what a shell starts in the background, pytest for one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 60
    while not (run.path / "pids").exists() and chain.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    pids = [int(p) for p in (run.path / "pids").read_text().split()]
    chain.send_signal(signum)
    out, err = chain.communicate(timeout=30)
    assert all(gone(pid, 5) for pid in pids), err
    if signum == signal.SIGKILL:
        assert chain.returncode == -signal.SIGKILL
        assert not [r for r in run.records()[0] if r.kind == "notebook"]
    else:
        assert out.strip() == f"['not_run'] {int(signum)}"
        name = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}[signum]
        assert (last(run).status, last(run).reason.split(" in ")[0]) == ("not_run", f"stopped by {name}")


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signum is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.name == "SIGTERM"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
