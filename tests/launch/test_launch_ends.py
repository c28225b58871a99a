"""Ends: what a script leaves behind, what died unseen, and what is said and kept of each."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from launch_bench import here_only, killed, log_of, ssh_only, stage
from test_launch_connection import configure, sessions

from capturebook import cli
from capturebook import launch as launching
from capturebook.launch import lasting
from capturebook.launch.logmap import may_mean, meaning


def sleepers(seconds: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", seconds]]


def test_what_left_session_and_environment_and_holds_the_output_is_ended(bench):
    began = time.monotonic()
    record = bench.script(
        "env -i setsid sleep 4127 &\nenv -i setsid sleep 4127 &\nsleep 0.3\necho RESULT\n", result={"log": "RESULT"}
    )
    assert record.status == "pass", record.reason
    assert any("outlived the program: sleep (2) (C4)" in caveat for caveat in record.caveats)
    assert not sleepers("4127") and not bench.running()
    assert time.monotonic() - began < 20


@here_only
def test_the_exit_status_does_not_wait_for_an_output_that_is_held_by_whom_we_may_not_see(bench):
    # The test itself holds it: older than the launch, so that the sweep does not look at it.
    bench.write("t.sh", "echo up; while [ ! -e go ]; do sleep 0.05; done; echo RESULT; exit 3\n")
    record = bench.launch(script="t.sh", ready={"log": "^up"})
    folder = Path(launching.Entry.open(record.run).info["folder"])
    with open(folder / "pipe", "wb"):
        (folder / "work/go").touch()
        stopped = launching.stop(record.run, bench.events.append)
    assert stopped.payload["exit"]["rc"] in ("3", "143") and not bench.running()
    assert "still holds the output" in log_of(bench, record)[-1]


@ssh_only
def test_a_lost_connection_is_no_end(sshd, bench, monkeypatch):
    monkeypatch.setattr(lasting, "LOST", 0.5)
    reached = os.environ["CAPTUREBOOK_SSH"]
    bench.write("t.sh", "echo up; while :; do sleep 0.1; done\n")

    def away(line):
        bench.events.append(line)
        if line.startswith("log "):
            configure(bench, monkeypatch, sshd, " Port ", " Port 1\n#")
            for pid in sessions(sshd.process.pid):
                os.kill(pid, signal.SIGKILL)

    record = launching.launch(bench.spec(script="t.sh", result={"log": "never"}), bench.host, away)
    assert "the connection is lost" in record.reason
    assert not any(event.startswith("ending it") for event in bench.events)
    assert launching.Entry.open(record.run).info["state"] == "lost" and bench.running()
    monkeypatch.setenv("CAPTUREBOOK_SSH", reached)
    assert launching.stop(record.run, bench.events.append).payload["stopped"] is True
    assert launching.Entry.open(record.run).info["state"] == "ended"


@here_only
def test_a_ready_server_that_died_ended_after_it_was_ready(bench):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    os.kill(launching.Entry.open(record.run).info["program"][0], signal.SIGKILL)
    until_exit(record)
    # To stop it tells the same: it makes no failure a pass.
    for act in (launching.stop, launching.attach, launching.stop):
        again = act(record.run, bench.events.append)
        assert again.status == "fail" and "it ended after it was ready: exit status 137" in again.reason
    assert again.reason.startswith("it had ended before: ") and again.payload["stopped"] is False
    assert launching.Entry.open(record.run).info["state"] == "ended"


def test_to_stop_what_did_not_pass_makes_it_no_pass(bench):
    record = bench.script("echo no $((1 + 1))\nexit 3\n", result={"log": "RESULT"})
    assert record.status == "fail"
    for _ in range(2):
        assert cli.main(["stop", record.run]) == 0
    last = launching.Entry.open(record.run).records()[-1]
    assert last.status == "fail" and last.reason == "it had ended before: exit status 3, wanted 0: no 2"


@here_only
def test_to_stop_what_nobody_saw_end_tells_how_it_ended(bench):
    bench.write("t.sh", "sleep 0.5; exit 3\n")

    def start(seen):
        launching.launch(bench.spec(script="t.sh", result={"log": "RESULT"}), bench.host, seen)

    killed("log", start)
    (name,) = bench.ids()
    until_exit(SimpleNamespace(run=name))
    stopped = launching.stop(name, bench.events.append)
    assert stopped.status == "fail" and "it had ended before: exit status 3, wanted 0" in stopped.reason
    assert stage(stopped, "end")["state"] == "failed"


def until_exit(record) -> None:
    end = time.monotonic() + 20
    while not Path(launching.Entry.open(record.run).info["folder"], "exit").exists():
        assert time.monotonic() < end
        time.sleep(0.1)


@here_only
@pytest.mark.parametrize(("text", "status"), [("touch", "not_run"), ("echo PASS again >", "pass")])
def test_c8_a_touched_result_is_the_old_one(bench, text, status):
    old = bench.root / "old"
    old.mkdir()
    (old / "result.txt").write_text("PASS\n")
    record = bench.script(f"{text} result.txt\n", cwd=str(old), result={"file": "result.txt", "contains": "PASS"})
    assert record.status == status, record.reason
    assert record.payload["class"] == ("C8" if status == "not_run" else "")


@here_only
@pytest.mark.parametrize(("target", "status"), [("made", "pass"), ("nowhere", "not_run")])
def test_a_result_may_be_a_link_to_a_file(bench, target, status):
    text = f"echo PASS >made; ln -s {target} latest\n"
    record = bench.script(text, result={"file": "latest", "contains": "PASS"})
    assert record.status == status, record.reason


@here_only
def test_an_ended_flood_is_read_to_its_end(bench):
    fields = {"failed": ["^FATAL"], "phases": {"most": "^1999998$"}, "result": {"log": "never"}}
    record = bench.script("seq 2000000; printf 'oops \\377'; exit 7\n", **fields)
    assert record.status == "fail" and "exit status 7" in record.reason
    assert log_of(bench, record)[-1] == "oops \ufffd"
    assert record.payload["timeline"][-1]["line"] == "1999998"


@here_only
def test_one_endless_line_is_not_kept_whole_in_the_record(bench):
    record = bench.script("head -c 20000000 /dev/zero | tr '\\0' x; exit 7\n", result={"log": "^never$"})
    assert record.status == "fail" and "exit status 7" in record.reason
    assert len(record.to_line()) < 10_000 and len(log_of(bench, record)[0]) == 20_000_000


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA",
        "operation not permitted when stream is capturing",
        "CUDA out of memory. Tried to allocate 2 GiB",
        "t.sh: 1: nosuch: not found",
        "bind: Address already in use",
    ],
)
def test_the_quick_look_misses_nothing(line):
    assert meaning(line) and may_mean(f"first\n{line}\nlast") and not may_mean("first\nlast")


@here_only
def test_a_restarted_host_is_named_once_and_at_once(bench):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    file = launching.Entry.open(record.run).path / "launch.json"
    kept = file.read_text()
    # As it is after a restart: the boot's number is another, whatever has the pids now.
    file.write_text(json.dumps({**json.loads(kept), "boot": "another", "state": "started"}))
    bench.events.clear()
    began = time.monotonic()
    again = launching.attach(record.run, bench.events.append)
    assert "the host was restarted" in again.reason and bench.running()
    assert len([event for event in bench.events if "restarted" in event]) == 1 and time.monotonic() - began < 15
    file.write_text(kept)
    launching.stop(record.run, bench.events.append)


@here_only
def test_a_recorded_process_that_is_another_is_not_signalled_and_the_launch_ended(bench):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    program = Path(launching.Entry.open(record.run).info["folder"], "program")
    kept = program.read_text()
    program.write_text(f"{os.getpid()} 1\n")
    # Who attaches is told at once, and leaves it as it is: it was ready.
    again = launching.attach(record.run, bench.events.append)
    assert (again.status, again.payload["class"]) == ("not_run", "C5") and bench.running(), again.reason
    assert "not the one that its keeper waits for" in again.reason
    program.write_text(kept)
    assert launching.attach(record.run, bench.events.append).status == "pass"
    program.write_text(f"{os.getpid()} 1\n")
    stopped = launching.stop(record.run, bench.events.append)
    assert not bench.running() and "its keeper was killed" in stopped.reason
    assert any("waits for another process" in event for event in bench.events)


@here_only
def test_a_keeper_that_is_slow_to_see_the_end_is_waited_for(bench):
    bench.write("up.sh", "echo up; sleep 1\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    info = launching.Entry.open(record.run).info
    keeper, program = (psutil.Process(info[name][0]) for name in ("keeper", "program"))
    # As on a host that is short of everything: it notices 2 s later.
    keeper.suspend()
    awake = threading.Timer(3.0, keeper.resume)
    awake.start()
    while program.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
    stopped = launching.stop(record.run, bench.events.append)
    awake.join()
    assert stopped.payload["exit"] == {"rc": "0", "left": ""}, stopped.reason


@here_only
@pytest.mark.skipif(shutil.which("nosuchthing") is not None, reason="there is such a thing")
def test_a_command_that_was_not_found_in_a_script_that_ran_is_no_c5(bench):
    record = bench.script("nosuchthing\nexit 0\n", result={"log": "RESULT"})
    assert (record.status, record.payload["class"]) == ("not_run", "C14"), record.reason
