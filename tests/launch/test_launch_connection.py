"""Connections that are refused, cut in the middle, or greeted by a login script."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib import resources

import pytest
from launch_bench import here_only, serve, ssh_only, stage

from capturebook import launch as launching
from capturebook.launch import identity, lasting
from capturebook.launch.channel import Channel, ChannelError, text_of


@ssh_only
def test_a_cut_connection_attaches_again(sshd, bench):
    bench.write("t.sh", "echo up; sleep 2; echo RESULT=42\n")
    cut = threading.Timer(1.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in sessions(sshd.process.pid)])
    cut.start()
    record = bench.launch(script="t.sh", result={"log": "RESULT=42"})
    cut.join()
    assert record.status == "pass", record.reason
    assert [event.split(",")[0] for event in bench.events if "connection" in event] == ["connection lost"]
    assert any(event.startswith("attached again after") for event in bench.events)


@here_only
@pytest.mark.parametrize("given", ["ssh '", " "])
def test_an_ssh_command_that_is_none_is_named(bench, monkeypatch, given):
    monkeypatch.setenv("CAPTUREBOOK_SSH", given)
    record = launching.launch(bench.spec(command=["true"], result={"log": "x"}), "gpu1", bench.events.append)
    assert record.status == "not_run" and f"CAPTUREBOOK_SSH: given {given!r}" in record.reason


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
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "deliver", "C5")
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
    ("old", "new", "says", "todo"),
    [
        (
            "known_hosts\n",
            "no_known_hosts\n",
            "its host key is not the known one, or not known yet",
            "run `ssh gpu1` once",
        ),
        ("user_key\n", "no_key\n", "it refuses the authentication", "`ssh gpu1 true` must do without a password"),
        ("HostName 127.0.0.1", "HostName nosuch.invalid", "its name is not resolved", "see ~/.ssh/config"),
        (" Port ", " Port 1\n#", "the connection is refused", "see ~/.ssh/config"),
    ],
)
def test_why_a_host_cannot_be_reached_is_said(bench, sshd, monkeypatch, old, new, says, todo):
    configure(bench, monkeypatch, sshd, old, new)
    asked = [*os.environ["CAPTUREBOOK_SSH"].split(), "-oBatchMode=yes", "gpu1", "true"]
    by_ssh = subprocess.run(asked, capture_output=True, text=True).stderr.strip().splitlines()[-1]
    began = time.monotonic()
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "connect", "C5")
    assert time.monotonic() - began < 20
    told = bench.events[-1].splitlines()
    assert told[0].startswith(f"not run in stage connect: ssh cannot reach gpu1: {says}: ") and by_ssh in told[0]
    assert told[-1].startswith("what to do: ") and todo in told[-1] and "PATH" not in told[-1]
    # The record has the cause, and neither the host's names nor who we are there.
    kept = record.model_dump_json()
    assert f"ssh cannot reach <host>: {says}: " in record.reason
    assert not [name for name in ("gpu1", "nosuch", "127.0.0.1", "@") if name in kept], record.reason


@here_only
def test_a_login_script_that_prints_is_no_answer(bench, monkeypatch):
    from capturebook.launch import channel

    noisy = resources.files("capturebook.launch") / "sh" / "agent.sh"
    text = b"printf 'Welcome!\\nsystem Irix\\nboot none\\n'\n" + noisy.read_bytes()
    monkeypatch.setattr(channel, "text_of", lambda *names: text_of("functions") + text)
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert record.status == "pass", record.reason


@here_only
def test_a_login_script_that_prints_without_end_is_named(bench, monkeypatch):
    from capturebook.launch import channel

    monkeypatch.setattr(channel, "text_of", lambda *names: b"yes Welcome\n")
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "connect", "C5")
    assert "64 MB came and no end of it: b'Welcome" in record.reason, record.reason


def test_a_slow_network_is_no_silence(tmp_path, monkeypatch):
    # About 1 MB/s, in place of ssh: what is sent takes twice as long as may pass without an answer.
    code = (
        "import os, subprocess, sys, time\np = subprocess.Popen(['sh', '-c', sys.argv[-1]], stdin=subprocess.PIPE)\n"
        "while part := os.read(0, 32768):\n    p.stdin.write(part)\n    p.stdin.flush()\n    time.sleep(0.03)\n"
    )
    (tmp_path / "ssh.py").write_text(code)
    monkeypatch.setenv("CAPTUREBOOK_SSH", f"{sys.executable} {tmp_path}/ssh.py")
    with Channel("far") as there:
        assert there.ask("true\n")[0] == 0
        began = time.monotonic()
        assert there.ask("wc -c\n", b"x" * (1 << 20), seconds=0.4) == (0, b"1048576\n")
        assert time.monotonic() - began > 0.4
        with pytest.raises(ChannelError, match="no answer within 0.2 s"):
            there.ask("sleep 5\n", b"x", seconds=0.2)


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
    monkeypatch.setattr(identity, "WITHIN", 5.0 if arrived else 1.0)
    record = bench.script("echo RESULT; sleep 1\n", result={"log": "RESULT"})
    assert "the connection ended" in stage(record, "start")["evidence"]["connection"]
    if arrived:
        assert record.status == "pass", record.reason
    else:
        assert (record.status, record.payload["class"]) == ("not_run", "C5")
        assert record.reason == "no program process was recorded" and not bench.running()


@ssh_only
def test_jump_hosts_and_control_sockets_are_the_users_own(sshd, bench, monkeypatch):
    config, short = bench.root / "ssh_config", tempfile.mkdtemp(prefix="cb-")
    jump = f" ProxyJump gpu1\n ControlMaster auto\n ControlPath {short}/%C\n ControlPersist 60\n"
    config.write_text(sshd.config.read_text().replace("Host gpu1\n", f"Host far\n{jump}Host gpu1 far\n"))
    monkeypatch.setenv("CAPTUREBOOK_SSH", f"ssh -F {config}")
    bench.host = "far"
    record = serve(bench)
    try:
        assert record.status == "pass", record.reason
        assert launching.stop(record.run, bench.events.append).payload["stopped"] is True
        # The user's own connection is used and left; the forward is no part of it.
        asked = subprocess.run(["ssh", "-F", config, "-O", "check", "far"], capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
    finally:
        subprocess.run(["ssh", "-F", config, "-O", "exit", "far"], capture_output=True)
        shutil.rmtree(short)


@ssh_only
def test_forwards_of_the_users_own_configuration_are_let_alone(sshd, bench, monkeypatch):
    # As while the user works there in a session of their own, which holds the port.
    with socket.create_server(("127.0.0.1", 0)) as held:
        taken = f"Host gpu1\n LocalForward {held.getsockname()[1]} 127.0.0.1:22\n ExitOnForwardFailure yes\n"
        configure(bench, monkeypatch, sshd, "Host gpu1\n", taken)
        record = serve(bench)
        assert record.status == "pass", record.reason
        launching.stop(record.run, bench.events.append)


@ssh_only
def test_a_cut_while_a_server_is_asked_attaches_again_with_its_forward(sshd, bench, monkeypatch):
    from capturebook.launch import readiness

    cuts, whole = [], readiness._owns_port

    def cut(following, evidence):
        """Connection and forward both end after the first request, which was no success."""
        listens = whole(following, evidence)
        if listens and len(cuts) < 3:
            cuts.append(sessions(sshd.process.pid))
            if len(cuts) == 3:
                for pid in cuts[-1]:
                    os.kill(pid, signal.SIGKILL)
        return listens

    monkeypatch.setattr(readiness, "_owns_port", cut)
    record = serve(bench, env={"WARM": "1.5"})
    assert record.status == "pass", record.reason
    assert len(cuts[-1]) >= 2 and any("attached again" in event for event in bench.events)
    launching.stop(record.run, bench.events.append)


@ssh_only
def test_a_connection_that_stays_away_ends_the_following_and_not_the_program(sshd, bench, monkeypatch):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    monkeypatch.setattr(lasting, "LOST", 0.5)
    reached = os.environ["CAPTUREBOOK_SSH"]

    def away(line):
        """The host is there when `attach` begins, and then no more."""
        if line.startswith("folder "):
            configure(bench, monkeypatch, sshd, " Port ", " Port 1\n#")
            for pid in sessions(sshd.process.pid):
                os.kill(pid, signal.SIGKILL)

    lost = launching.attach(record.run, away)
    assert (lost.status, lost.payload["failed_stage"]) == ("timeout", "identity"), lost.reason
    assert "the connection is lost" in lost.reason and f"capturebook attach {record.run}" in lost.payload["todo"]
    monkeypatch.setenv("CAPTUREBOOK_SSH", reached)
    assert launching.stop(record.run, bench.events.append).payload["stopped"] is True
