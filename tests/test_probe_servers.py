"""Probe servers that die, or whose client does: nothing is left running, and no later probe pays for it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capturebook.probes import ProbePool, processes, servers
from capturebook.probes.tempfolder import TempFolder
from test_probes import HERE, Run, planted, running, until


@pytest.fixture(autouse=True)
def jobs_are_found(monkeypatch):
    """Servers that a test starts find the planted jobs beside it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]]))


def test_sigkill_of_the_client_ends_server_probe_and_grandchildren(tmp_path):
    pid_file = tmp_path / "pids"
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from test_probes import Run, planted
from capturebook.probes import ProbePool
with ProbePool(Run(Path({str(tmp_path)!r}))) as pool:
    pool.run([planted("hang_with_grandchild", args={{"pid_file": {str(pid_file)!r}}}, deadline=60)])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    client = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)
    until(lambda: pid_file.exists() and len(pid_file.read_text().split()) == 2, 60)
    family = processes.descendants(client.pid) | {int(pid) for pid in pid_file.read_text().split()}
    assert len(family) >= 4, "server, supervisor, child and grandchild"
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    until(lambda: not any(running(pid) for pid in family), 10)


def test_an_import_that_never_ends_has_a_limit_and_ends_with_its_client(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(
        "import os, time\nprint('importing', os.getpid(), flush=True)\ntime.sleep(900)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    code = """
import sys
from pathlib import Path
from test_probes import Run, planted
from capturebook.probes import ProbePool, servers
with ProbePool(Run(Path(sys.argv[1])), on_event=lambda text: None) as pool:
    servers.START_SECONDS = 0.5
    for record in pool.run([planted("fine", seed=seed) for seed in (1, 2)]):
        print(record.status, record.reason, flush=True)
    servers.START_SECONDS = 900.0
    pool.run([planted("fine", preload=("json",))])
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert [client.stdout.readline()[:43] for _ in "12"] == ["not_run probe server: not ready after 0.5 s"] * 2
    log = tmp_path / "logs" / "probe-server.log"
    imports = lambda: {int(pid) for pid in log.read_text().split()[1::2]} & processes.children(client.pid)  # noqa: E731
    until(imports, 60)
    (server,) = imports()
    client.kill()
    client.communicate()
    until(lambda: not running(server), 10)
    assert not list((tmp_path / "t").glob("capturebook-*"))


def test_a_folder_is_removed_once_its_owner_is_dead_and_not_before(tmp_path):
    code = """
import sys
from capturebook.probes.tempfolder import TempFolder
print(TempFolder("x", sys.argv[1]).path, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held = Path(owner.stdout.readline().strip())
    (tmp_path / "capturebook-x-mine").mkdir()
    (tmp_path / "capturebook-x-12345678").write_text("a file")
    with TempFolder("x", str(tmp_path)) as mine:
        assert held.is_dir() and os.stat(mine).st_mode & 0o777 == 0o700
        owner.kill()
        owner.communicate()
        with TempFolder("x", str(tmp_path)) as other:
            assert not held.exists() and os.path.isdir(mine) and os.path.isdir(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capturebook-x-12345678", "capturebook-x-mine"]


def test_sigkill_of_the_server_ends_its_probes(tmp_path):
    pid_file = tmp_path / "pids"
    run = Run(tmp_path)
    code = f"import os, signal, time, pathlib; p = pathlib.Path({str(pid_file)!r})\n"
    code += "while not p.exists() or len(p.read_text().split()) < 2: time.sleep(0.05)\n"
    with ProbePool(run, on_event=lambda text: None) as pool:
        pool.run([planted("fine")])
        (server,) = pool._servers._owned.values()
        code += f"os.kill({server.pid}, signal.SIGKILL)"
        killer = subprocess.Popen([sys.executable, "-c", code])
        (record,) = pool.run([planted("hang_with_grandchild", args={"pid_file": str(pid_file)}, deadline=30.0)])
        killer.wait()
    assert record.status == "fail"
    assert "supervisor" in record.reason
    until(lambda: not any(running(int(pid)) for pid in pid_file.read_text().split()), 10)


def test_a_shared_server_that_is_gone_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv(servers.SHARED, str(tmp_path / "gone"))
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        first, second = pool.run([planted("fine", seed=1), planted("fine", seed=2)])
    assert (first.status, second.status) == ("pass", "pass")


def test_a_killed_server_costs_no_later_probe(tmp_path, monkeypatch):
    """Nor does a module that prints, as a server says that it is ready, and asks for input."""
    (tmp_path / "talky.py").write_text("import sys\nprint('ready')\nprint('read', repr(sys.stdin.read()))\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        (before,) = pool.run([planted("fine", seed=1, preload=("talky",))])
        (server,) = pool._servers._owned.values()
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not running(server.pid), 10)
        (lost,) = pool.run([planted("fine", seed=2, preload=("talky",))])
        (after,) = pool.run([planted("fine", seed=3, preload=("talky",))])
    assert (before.status, lost.status, after.status) == ("pass", "not_run", "pass")
    assert "probe server" in lost.reason
    assert "ready\nread ''" in (tmp_path / "logs" / "probe-server.log").read_text()
