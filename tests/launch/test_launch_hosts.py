"""Hosts with a full or read-only disk, few tools, no bash, or a wrong clock."""

import os
import shutil
import subprocess
import time

import pytest
from launch_bench import here_only, toolbox

from capturebook import cli
from capturebook import launch as launching


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


@here_only
def test_when_our_own_disk_fills_up_it_is_told_that_the_program_goes_on(bench, mounted):
    (bench.root / "outputs").mkdir()
    mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs", bench.root / "outputs")
    (bench.root / "there").mkdir()
    bench.write("t.sh", "head -c 1000000 /dev/urandom | od; echo RESULT; sleep 3\n")
    path = bench.write("t.yaml", f"script: t.sh\nresult: {{log: RESULT}}\nfolder: {bench.root}/there\n")
    caller = bench.cli("launch", str(path))
    said = caller.communicate(timeout=30)[1].splitlines()
    assert caller.returncode == 3
    assert said[-2:] == [
        "capturebook: outputs cannot be written: No space left on device",
        "what was started goes on without us; `capturebook launches`, `attach ID` and `stop ID` find it",
    ]
    bench.end_all()


@here_only
def test_a_full_disk_of_our_own_keeps_no_server_from_being_stopped(bench, mounted, capsys):
    (bench.root / "outputs").mkdir()
    mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs", bench.root / "outputs")
    (bench.root / "there").mkdir()
    bench.write("up.sh", "echo up; while :; do seq 999; sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"}, folder=str(bench.root / "there"))
    entry = launching.Entry.open(record.run)
    with pytest.raises(OSError, match="No space left"):
        (bench.root / "outputs/fill").write_bytes(bytes(1 << 20))
    # More than its copy here, which is made anew, leaves room for.
    log, room, end = bench.root / "there" / record.run / "log", entry.log_path.stat().st_size + 8192, time.time() + 20
    while log.stat().st_size < room:
        assert time.time() < end
        time.sleep(0.05)
    with pytest.raises(SystemExit) as ended:
        cli.main(["stop", record.run])
    assert ended.value.code == 3 and not bench.running()
    said = capsys.readouterr().err.splitlines()
    assert said[-2].startswith("stopped, which cannot be recorded: exit status 1")
    assert said[-1] == "capturebook: outputs cannot be written: No space left on device"


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
def test_a_host_too_slow_to_start_it_does_not_start_it_later(bench, monkeypatch):
    # The keeper makes its pipe before it starts the program; here that takes longer than is waited for.
    slow = f'#!/bin/sh\nsleep 5\nexec {shutil.which("mkfifo")} "$@"\n'
    toolbox(bench, monkeypatch, mkfifo=slow)
    record = bench.script("touch ran\n", result={"log": "RESULT"})
    assert (record.status, record.payload["failed_stage"], record.payload["class"]) == ("not_run", "start", "C5")
    assert not bench.running() and not list(bench.root.rglob("ran"))
