"""`capturebook run` on planted notebooks: exit status, last lines, resume, signals, the interpreter."""

import json
import os
import signal
import sys
import time

import psutil

import planted_repo
from capturebook.records import read

CONCLUDE = "s.conclude('pass', 'planted conclusion')"


def one_run(root):
    (path,) = (root / "outputs").iterdir()
    return path


def notebooks_of(path) -> list[tuple]:
    return [(r.notebook, r.status) for r in read(path / "records.jsonl")[0] if r.kind == "notebook"]


def test_run_resume_and_expect(tmp_path):
    """A notebook fails at first: exit 3, the next runs all the same. Repaired and resumed: exit 0."""
    broken = "import pathlib\nassert pathlib.Path(s.run.path, 'repaired').exists()"
    root = planted_repo.repository(tmp_path, a00_one=[broken, CONCLUDE], a05_two=["s.verdict()", CONCLUDE])
    code, out, err = planted_repo.run(root, "run", "cpu", "--set", "heads=16")
    run = one_run(root)
    assert code == 3, err
    assert notebooks_of(run) == [("00_one", "fail"), ("05_two", "pass")]
    assert "incomplete: 00_one: fail: AssertionError" in err
    lines = out.splitlines()
    assert lines[-1] == f"report: outputs/{run.name}/report.html" and (run / "report.html").is_file()
    assert any(line.startswith("Not decided on this machine") for line in lines)
    info = json.loads((run / "run.json").read_text())
    assert run.name.startswith("cpu-") and info["parameters"]["heads"] == 16
    assert info["invocations"][0]["notebooks"] == ["00_one", "05_two"]

    where = f"outputs/{run.name}"
    code, _, err = planted_repo.run(root, "run", "cpu", "--run-dir", where, "--only", "00")
    assert code == 2 and "made with another parameter heads: 64 now, 16 in the run" in err
    assert len(json.loads((run / "run.json").read_text())["invocations"]) == 1

    (run / "repaired").touch()
    code, _, err = planted_repo.run(root, "run", "--run-dir", where, "--only", "00", "--expect", "stack")
    assert code == 4, err
    assert "expected owner stack, found not_run" in err
    assert notebooks_of(run) == [("00_one", "fail"), ("05_two", "pass"), ("00_one", "pass")]
    assert json.loads((run / "verdict.json").read_text())["owner"] == "not_run"


def test_stopping_says_how_to_go_on_and_leaves_nothing(tmp_path):
    hang = (
        "import os\nprint(os.path.expanduser('~/mine.py'), file=open(s.run.path / 'logs' / 'probe-server.log', 'a'))\n"
        "s.pool()\nopen(s.run.path / 'pid', 'w').write(str(os.getpid()))\n__import__('time').sleep(600)"
    )
    root = planted_repo.repository(tmp_path, a00_one=[hang], a05_two=[CONCLUDE])
    process = planted_repo.command(root, "run", "cpu", HOME=str(tmp_path / "home" / "ada"))
    pid = None
    while process.poll() is None and not pid:
        time.sleep(0.05)
        found = list((root / "outputs").glob("*/pid"))
        pid = found and found[0].read_text()
    children = psutil.Process(process.pid).children(recursive=True)
    assert int(pid) in [child.pid for child in children]
    assert list(one_run(root).glob("probes-*"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    run = one_run(root)
    assert process.returncode == 143
    assert err.strip().splitlines()[-1] == (
        f"stopped by SIGTERM; go on with: capturebook run --run-dir outputs/{run.name}"
    )
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert not list(run.glob("probes-*"))
    logs = "".join(log.read_text() for log in run.glob("logs/*.log"))
    assert "~/mine.py" in logs and str(tmp_path) not in logs
    assert notebooks_of(run) == [("00_one", "not_run")]
    assert json.loads((run / "run.json").read_text())["invocations"][0]["stopped"] == "SIGTERM"


def test_a_kernel_of_another_interpreter_is_not_run(tmp_path):
    """A python3 kernel spec found first, whose interpreter is the same under another name."""
    root = planted_repo.repository(tmp_path / "repo", a00_one=[CONCLUDE])
    other = tmp_path / "venv" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.symlink_to(os.path.realpath(sys.executable))
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(other), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "other", "language": "python"}))
    packages = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    path = os.pathsep.join([str(planted_repo.REPO / "lib"), packages])
    code, _, err = planted_repo.run(root, "run", "cpu", JUPYTER_PATH=str(tmp_path / "jupyter"), PYTHONPATH=path)
    (record,) = [r for r in read(one_run(root) / "records.jsonl")[0] if r.kind == "notebook"]
    assert (code, record.status) == (3, "not_run"), err
    assert record.reason.startswith("the kernel runs venv/bin/python, the chain ")
