"""Probe servers that die, or whose client does: nothing is left running, and no later probe pays for it."""

import os
import signal
import subprocess
import sys

import pytest

from capturebook.probes import ProbePool, processes, servers
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


def test_a_killed_server_costs_no_later_probe(tmp_path):
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        (before,) = pool.run([planted("fine", seed=1)])
        (server,) = pool._servers._owned.values()
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not running(server.pid), 10)
        (lost,) = pool.run([planted("fine", seed=2)])
        (after,) = pool.run([planted("fine", seed=3)])
    assert (before.status, lost.status, after.status) == ("pass", "not_run", "pass")
    assert "probe server" in lost.reason
