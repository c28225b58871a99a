"""Connections that are refused, cut in the middle, or greeted by a login script."""

import os
import signal
import threading
import time
from importlib import resources

import pytest
from launch_bench import here_only, ssh_only, stage

from capturebook.launch.channel import text_of


@ssh_only
def test_a_cut_connection_attaches_again(sshd, bench):
    bench.write("t.sh", "echo up; sleep 2.5; echo RESULT=42\n")
    cut = threading.Timer(1.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in sessions(sshd.process.pid)])
    cut.start()
    record = bench.launch(script="t.sh", result={"log": "RESULT=42"})
    cut.join()
    assert record.status == "pass", record.reason
    assert [event.split(",")[0] for event in bench.events if "connection" in event] == ["connection lost"]
    assert any(event.startswith("attached again after") for event in bench.events)


@ssh_only
def test_a_cut_in_the_middle_of_a_delivery_is_named(sshd, bench, monkeypatch):
    from capturebook.launch.host import Host

    whole = Host.deliver

    def cut(self, path, data, mode):
        for pid in sessions(sshd.process.pid):
            os.kill(pid, signal.SIGKILL)
        return whole(self, path, data, mode)

    monkeypatch.setattr(Host, "deliver", cut)
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert (record.status, record.payload["failed_stage"]) == ("not_run", "deliver")
    assert "the connection ended" in record.reason


def sessions(sshd: int) -> set[int]:
    from capturebook.probes.processes import children

    return children(sshd)


def configure(bench, monkeypatch, sshd, old: str, new: str):
    """Another ssh configuration, in which one text is another."""
    config = bench.root / "ssh_config"
    text = sshd.config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    monkeypatch.setenv("CAPTUREBOOK_SSH", f"ssh -F {config}")


@ssh_only
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("known_hosts\n", "no_known_hosts\n", "Host key verification failed"),
        ("user_key\n", "no_key\n", "Permission denied"),
        ("HostName 127.0.0.1", "HostName nosuch.invalid", "Could not resolve hostname"),
        (" Port ", " Port 1\n#", "Connection refused"),
    ],
)
def test_why_a_host_cannot_be_reached_is_said(bench, sshd, monkeypatch, old, new, says):
    configure(bench, monkeypatch, sshd, old, new)
    began = time.monotonic()
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "connect", "C5")
    assert says in record.reason and time.monotonic() - began < 20


@here_only
def test_a_login_script_that_prints_is_no_answer(bench, monkeypatch):
    from capturebook.launch import channel

    noisy = resources.files("capturebook.launch") / "sh" / "agent.sh"
    text = b"printf 'Welcome!\\nsystem Irix\\nboot none\\n'\n" + noisy.read_bytes()
    monkeypatch.setattr(channel, "text_of", lambda *names: text_of("functions") + text)
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert record.status == "pass", record.reason


@ssh_only
@pytest.mark.parametrize("arrived", [True, False], ids=["started", "not started"])
def test_a_cut_at_the_start_is_resolved_by_looking(sshd, bench, monkeypatch, arrived):
    from capturebook.launch.host import Host

    whole = Host.start

    def cut(self, *args):
        """The answer is lost, or the request too."""
        if arrived:
            whole(self, *args)
        for pid in sessions(sshd.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.channel.ask("true\n")

    monkeypatch.setattr(Host, "start", cut)
    record = bench.script("echo RESULT; sleep 1\n", result={"log": "RESULT"})
    assert "the connection ended" in stage(record, "start")["evidence"]["connection"]
    if arrived:
        assert record.status == "pass", record.reason
    else:
        assert (record.status, record.payload["class"]) == ("not_run", "C5")
        assert record.reason == "no program process was recorded" and not bench.running()
