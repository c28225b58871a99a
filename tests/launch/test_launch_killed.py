"""A launcher, keeper or folder that is gone, at every stage: nothing was started, or `attach` finds it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from launch_bench import here_only, killed, stage

from capturebook import launch as launching
from capturebook.launch.channel import text_of

BEFORE = ["launch", "connect", "folder", "deliver", "syntax", "environment", "port"]


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
    return killed_at(bench, at)


def killed_at(bench, at: str) -> str:
    """The id of a launch whose launcher killed itself with SIGKILL once the named stage held."""
    spec = launching.load(bench.root / "local/t.yaml")
    killed(at, lambda seen: launching.launch(spec, bench.host, seen))
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
    attached = launching.attach(record.run, bench.events.append)
    assert "its keeper was killed after it was ready" in attached.reason and "did not end with it" in attached.reason
    assert [line for line in bench.running() if line.endswith("t.sh ")]
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


@here_only
def test_a_launcher_killed_once_a_server_is_ready_is_no_loss(bench):
    bench.write("t.sh", "echo up; while :; do sleep 0.1; done\n")
    bench.write("t.yaml", "script: t.sh\nready: {log: ^up}\n")
    name = killed_at(bench, "ready")
    record = launching.attach(name, bench.events.append)
    assert record.status == "pass", record.reason
    assert launching.stop(name, bench.events.append).payload["stopped"] is True
