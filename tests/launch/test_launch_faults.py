"""What breaks under a launcher: connections, disks, hosts, callers, and programs that misbehave."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib import resources
from pathlib import Path

import pytest
from launch_bench import free_port, log_of, stage

from capturebook import launch as launching
from capturebook.launch.channel import text_of

here_only = pytest.mark.parametrize("bench", ["here"], indirect=True)
ssh_only = pytest.mark.parametrize("bench", ["ssh"], indirect=True)

SERVER = """\
import http.server, sys, time, os
died = len(sys.argv) > 2 and sys.argv[2]
began = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        began.append(time.monotonic())
        warm = time.monotonic() - began[0] > 1.0
        code = 200 if self.path == "/health" or warm else 503
        body = f"worked for {os.environ['CAPTUREBOOK_LAUNCH']}".encode() if warm else b"ok"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if died and warm and self.path == "/work":
            self.wfile.flush()
            os._exit(7)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer((os.environ.get("BIND", "127.0.0.1"), int(sys.argv[1])), Handler)
print("listening", flush=True)
server.serve_forever()
"""
READY = {"url": "http://127.0.0.1:{port}/work", "expect": "worked for {nonce}"}


def serve(bench, *args, **fields):
    bench.write("server.py", SERVER)
    fields = {"port": "auto", "ready": READY, "deadline": 30, **fields}
    return bench.launch(script="server.py", interpreter=[sys.executable], args=["{port}", *args], **fields)


def test_ready_means_real_work_by_our_process(bench):
    record = serve(bench)
    assert record.status == "pass", record.reason
    evidence = stage(record, "ready")["evidence"]
    assert evidence["answer"] == f"worked for {record.nonce}" and evidence["owner_is"] == "the program"
    # It answered for a second before it worked; its /health would have said ok.
    assert evidence["asked"] > 1 and not record.caveats
    assert len([line for line in bench.running() if "server.py" in line and "keeper" not in line]) == 1
    assert launching.stop(record.run, bench.events.append).status == "pass"


def test_a_server_that_says_ready_and_dies(bench):
    record = serve(bench, "dies")
    assert record.status == "fail" and record.payload["failed_stage"] == "ready"
    assert "exit status 7" in record.reason


@here_only
def test_a_server_on_every_address_is_reported(bench):
    record = serve(bench, env={"BIND": "0.0.0.0"})
    assert any("every address" in caveat for caveat in record.caveats)
    launching.stop(record.run, bench.events.append)


@here_only
def test_a_server_that_never_works_is_not_ready(bench):
    record = serve(bench, ready={"url": READY["url"], "expect": "something else"}, deadline=3)
    assert (record.status, record.payload["class"]) == ("timeout", "C10")
    assert "without the expected text" in record.reason


def test_two_launches_at_once_on_one_port(bench):
    port = free_port()
    records = {}

    def one(name):
        records[name] = serve(bench, port=port)

    threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ready = [record for record in records.values() if record.status == "pass"]
    other = [record for record in records.values() if record.status != "pass"]
    assert len(ready) == 1 and other[0].payload["class"] == "C9", [record.reason for record in records.values()]
    launching.stop(ready[0].run, bench.events.append)


@here_only
def test_a_flood_is_capped_and_its_end_kept(bench):
    record = bench.script(
        "yes 'a line that comes again and again and again' | head -c 40000000; echo RESULT=42\n",
        result={"log": "RESULT=42"},
        log_limit=1,
    )
    assert record.status == "pass", record.reason
    assert any("log limit reached" in line for line in log_of(bench, record))
    assert record.payload["log_bytes"] < 1.2e6


@here_only
def test_a_flood_beside_a_secret_is_capped_too(bench):
    record = bench.script(
        'yes "the $MY_TOKEN again" | head -c 4000000; echo RESULT; echo DONE >out\n',
        result={"file": "out"},
        env={"MY_TOKEN": "hidden-value"},
        log_limit=1,
    )
    assert record.status == "pass", record.reason
    lines = log_of(bench, record)
    assert lines[0] == "the [redacted] again" and any("log limit reached" in line for line in lines)
    assert record.payload["log_bytes"] < 1.2e6


@here_only
def test_a_zombie_child_does_not_hold_the_end(bench):
    code = "import os, time\npid = os.fork()\nif not pid: os._exit(0)\ntime.sleep(0.5)\nprint('RESULT', flush=True)\n"
    record = bench.script(code, name="z.py", result={"log": "RESULT"})
    assert record.status == "pass" and not any("outlived" in caveat for caveat in record.caveats)


@here_only
def test_a_program_that_ignores_sigterm_is_killed(bench):
    bench.write("deaf.sh", "trap '' TERM HUP INT\necho up\nwhile :; do sleep 0.1; done\n")
    record = bench.launch(script="deaf.sh", ready={"log": "^up"})
    stopped = launching.stop(record.run, bench.events.append, grace=0.5)
    assert stopped.payload["exit"]["rc"] == "137" and not bench.running()


@here_only
def test_signals_are_as_a_shell_would_start_it(bench):
    record = bench.script(
        "import signal\nprint('RESULT', signal.getsignal(signal.SIGINT) is signal.default_int_handler,"
        " signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL)\n",
        name="s.py",
        result={"log": "RESULT True True"},
    )
    assert record.status == "pass", record.reason


# The launcher kills itself with SIGKILL as soon as the named stage holds.
KILLED = """\
import os, signal, sys
from capturebook import launch
def seen(text):
    if text.startswith(sys.argv[2] + " "):
        os.kill(os.getpid(), signal.SIGKILL)
launch.launch(launch.load(sys.argv[1]), sys.argv[3] or None, seen)
"""


BEFORE = ["launch", "connect", "folder", "deliver", "environment", "port"]


@pytest.mark.parametrize(
    ("bench", "at"), [*(("here", at) for at in BEFORE), ("ssh", "deliver"), ("ssh", "port")], indirect=["bench"]
)
def test_a_launcher_killed_before_the_start_started_nothing(bench, at):
    name = killed_launcher(bench, at)
    assert not bench.running()
    record = launching.attach(name, bench.events.append)
    assert record.status == "not_run" and "nothing was started" in record.reason
    assert record.payload["class"] == "C5"


@pytest.mark.parametrize(
    ("bench", "at"), [("here", "start"), ("here", "identity"), ("here", "log"), ("ssh", "start")], indirect=["bench"]
)
def test_a_launcher_killed_after_the_start_is_no_loss(bench, at):
    name = killed_launcher(bench, at)
    record = launching.attach(name, bench.events.append)
    assert record.status == "pass", record.reason
    assert stage(record, "end")["evidence"]["line"] == "RESULT=42"


def killed_launcher(bench, at: str) -> str:
    bench.write("t.sh", "sleep 0.7; echo RESULT=42\n")
    bench.write("t.yaml", "script: t.sh\nresult: {log: RESULT=42}\n")
    code = [sys.executable, "-c", KILLED, str(bench.root / "local/t.yaml"), at, bench.host or ""]
    assert subprocess.run(code, timeout=60).returncode == -signal.SIGKILL
    (name,) = bench.ids()
    return name


def test_half_a_start_text_starts_nothing(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "keeper.sh").write_bytes(text_of("functions", "keeper"))
    text = "program_environment() { :; }\nprogram_setup() { :; }\nprogram_exec() { touch ran; }\ncb_redacts=\n"
    done = subprocess.run(["/bin/sh", tmp_path / "keeper.sh", tmp_path, "n0nce", "100"], input=text.encode())
    assert done.returncode == 1 and not (tmp_path / "program").exists() and not (tmp_path / "work/ran").exists()


@here_only
def test_a_killed_keeper_is_named_and_its_program_ended(bench):
    bench.write("t.sh", "echo up; sleep 0.3; while :; do sleep 0.1; done\n")
    record = bench.launch(script="t.sh", ready={"log": "^up"})
    os.kill(launching.Entry.open(record.run).info["keeper"][0], signal.SIGKILL)
    stopped = launching.stop(record.run, bench.events.append)
    assert "keeper was killed" in stopped.reason and not bench.running()


@here_only
def test_a_removed_folder_is_an_error_and_no_value(bench):
    bench.write("t.sh", "echo up; sleep 20\n")
    record = bench.launch(script="t.sh", ready={"log": "^up"})
    entry = launching.Entry.open(record.run)
    folder, moved = Path(entry.info["folder"]), bench.root / "moved"
    folder.rename(moved)
    gone = launching.attach(record.run, bench.events.append)
    assert (gone.status, gone.payload["class"]) == ("not_run", "C11")
    moved.rename(folder)
    launching.stop(record.run, bench.events.append)


@ssh_only
def test_a_cut_connection_attaches_again(sshd, bench):
    bench.write("t.sh", "echo up; sleep 2.5; echo RESULT=42\n")
    cut = threading.Timer(1.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in sessions(sshd.process.pid)])
    cut.start()
    record = bench.launch(script="t.sh", result={"log": "RESULT=42"})
    cut.join()
    assert record.status == "pass", record.reason
    assert any("attaching again" in event for event in bench.events)


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
def test_a_read_only_folder_is_named(bench, mounted):
    mounted("--bind", bench.root / "remote home", bench.root / "remote home")
    subprocess.run(["mount", "-o", "remount,bind,ro", bench.root / "remote home"], check=True)
    record = bench.script("echo RESULT\n", result={"log": "RESULT"}, folder=str(bench.root / "remote home"))
    assert (record.payload["failed_stage"], record.payload["class"]) == ("folder", "C6")
    assert "Read-only file system" in record.reason


@here_only
def test_a_full_disk_is_named(bench, mounted):
    mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs", bench.root / "remote home")
    bench.write("big", os.urandom(1 << 20))
    record = bench.script(
        "echo RESULT\n", result={"log": "RESULT"}, folder=str(bench.root / "remote home"), files=["big"]
    )
    assert (record.payload["failed_stage"], record.payload["class"]) == ("deliver", "C6")
    assert "No space left" in record.reason


@here_only
def test_a_disk_that_fills_up_later_still_gets_its_exit_status(bench, mounted):
    mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs", bench.root / "remote home")
    record = bench.script(
        "cat /dev/zero >fill; exit 4\n", result={"log": "RESULT"}, folder=str(bench.root / "remote home")
    )
    assert record.status == "fail" and "exit status 4" in record.reason
    shutil.rmtree(bench.root / "remote home", ignore_errors=True)


@pytest.fixture
def mounted(bench):
    """Mount something for one test."""
    points = []

    def mount(*args):
        done = subprocess.run(["mount", *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
        points.append(args[-1])

    yield mount
    for point in points:
        subprocess.run(["umount", "-l", point], check=True)


def toolbox(bench, monkeypatch, *without: str, **scripts: str) -> None:
    """A PATH on which the host has few tools: those the launcher needs, and `scripts` in place of some."""
    box = bench.root / "tools"
    box.mkdir()
    needed = "setsid sha256sum head tail dd mkfifo stat env tr cat mkdir mv chmod rm sleep uname date ls readlink sh"
    for name in needed.split():
        if name not in without:
            (box / name).symlink_to(shutil.which(name))
    for name, text in scripts.items():
        (box / name).unlink(missing_ok=True)
        (box / name).write_text(text)
        (box / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(box))


@here_only
def test_a_host_without_bash_runs_what_needs_none(bench, monkeypatch):
    toolbox(bench, monkeypatch)
    record = bench.script("#!/bin/sh\necho RESULT=$((6 * 7))\n", result={"log": "RESULT=42"})
    assert record.status == "pass", record.reason
    record = bench.script("#!/usr/bin/env bash\necho RESULT\n", result={"log": "RESULT"})
    assert (record.status, record.payload["class"]) == ("not_run", "C5") and "no bash there" in record.reason


@here_only
def test_a_host_that_lacks_a_tool_is_named(bench, monkeypatch):
    toolbox(bench, monkeypatch, "sha256sum")
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert record.payload["failed_stage"] == "connect" and "lacks sha256sum" in record.reason


@here_only
def test_a_wrong_clock_changes_nothing(bench, monkeypatch):
    toolbox(bench, monkeypatch, date="#!/bin/sh\necho 86400\n")
    record = bench.script("sleep 0.3; echo RESULT >out\n", result={"file": "out", "contains": "RESULT"})
    assert record.status == "pass", record.reason
    assert any("clock" in caveat for caveat in record.caveats)
    assert 0.2 < record.payload["seconds"] < 10


@here_only
def test_a_login_script_that_prints_is_no_answer(bench, monkeypatch):
    from capturebook.launch import channel

    noisy = resources.files("capturebook.launch") / "sh" / "agent.sh"
    text = b"printf 'Welcome!\\nsystem Irix\\nboot none\\n'\n" + noisy.read_bytes()
    monkeypatch.setattr(channel, "text_of", lambda *names: text_of("functions") + text)
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert record.status == "pass", record.reason


@here_only
def test_attach_to_a_server_long_after_its_deadline_leaves_it_alone(bench):
    record = serve(bench, deadline=6)
    entry = launching.Entry.open(record.run)
    time.sleep(max(0.0, 6.5 - record.payload["seconds"]))
    again = launching.attach(record.run, bench.events.append)
    assert again.status == "pass", again.reason
    os.kill(entry.info["program"][0], signal.SIGSTOP)
    entry.info["resolved"]["deadline"] = 1.0
    entry.save()
    hangs = launching.attach(record.run, bench.events.append)
    assert (hangs.status, hangs.payload["class"]) == ("timeout", "C10") and bench.running()
    os.kill(entry.info["program"][0], signal.SIGCONT)
    launching.stop(record.run, bench.events.append)


@here_only
def test_an_inherited_secret_is_redacted_at_the_source(bench, monkeypatch):
    monkeypatch.setenv("SOME_PASSWORD", "inherited-one")
    record = bench.script("echo RESULT $SOME_PASSWORD\n", result={"log": "RESULT"})
    assert log_of(bench, record) == ["RESULT [redacted]"]
    kept = [path for path in bench.root.rglob("*") if path.is_file() and b"inherited-one" in path.read_bytes()]
    assert kept == []


CLIENT = """\
import os, sys, urllib.request
print("RESULT", urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/work", timeout=10).read().decode(), flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("status", ["0", "5"])
@here_only
def test_two_launches_in_order_and_the_first_stopped_when_the_second_fails(bench, status):
    bench.write("server.py", SERVER)
    bench.write("client.py", CLIENT)
    first = bench.spec(
        name="prefill", script="server.py", interpreter=[sys.executable], args=["{port}"], port="auto", ready=READY
    )
    second = bench.spec(
        name="decode", script="client.py", args=["{prefill.port}", status], result={"log": "worked for"}
    )
    records = launching.launch_in_order([first, second], bench.host, bench.events.append)
    # The second really reached the first, which had warmed up before it was started.
    assert log_of(bench, records[1]) == [f"RESULT worked for {records[0].nonce}"]
    if status == "0":
        assert [record.status for record in records] == ["pass", "pass"]
        launching.stop(records[0].run, bench.events.append)
    else:
        assert [record.status for record in records] == ["pass", "fail", "pass"]
        assert records[2].run == records[0].run and records[2].payload["stopped"] is True
    with pytest.raises(launching.LaunchFileError, match="given to 2 launches"):
        launching.launch_in_order([first, first], bench.host, bench.events.append)
