"""`attach ID --log` of a ready server follows its log, as `journalctl -f` does, and never ends it."""

import signal
from pathlib import Path

from launch_bench import here_only, ssh_only

from capturebook import launch as launching

UP = "echo up; until [ -e go ]; do sleep 0.05; done; echo seen since\n"


def server(bench, then: str):
    """A server that is ready and writes more once it is told to."""
    bench.write("up.sh", UP + then)
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    return record, Path(launching.Entry.open(record.run).info["folder"], "work/go").touch


def wait_for(lines, text: str) -> None:
    assert any(text in line for line in lines)


@ssh_only
def test_it_follows_until_ctrl_c_which_leaves_the_server(bench):
    record, go = server(bench, "sleep 60")
    follower = bench.cli("attach", record.run, "--log")
    wait_for(follower.stderr, "following its log")
    go()
    wait_for(follower.stdout, "  | seen since")
    follower.send_signal(signal.SIGINT)
    said = follower.communicate(timeout=20)[1]
    assert follower.returncode == 0 and "pass: ready; it goes on" in said, said
    assert launching.Entry.open(record.run).info["state"] == "ready"
    assert [line for line in bench.running() if line.endswith("up.sh ")]
    assert launching.stop(record.run, bench.events.append).payload["stopped"] is True


@here_only
def test_it_ends_with_the_server_and_says_how(bench):
    record, go = server(bench, "echo last words; exit 7")
    lines: list[str] = []
    ended = launching.attach(record.run, lambda text: go() if text.startswith("following") else None, lines.append)
    assert lines == ["up", "seen since", "last words"]
    assert ended.status == "fail" and ended.reason.startswith("it ended after it was ready: exit status 7")
    assert launching.Entry.open(record.run).info["state"] == "ended"


@here_only
def test_it_ends_when_somebody_stops_the_server(bench):
    record, _ = server(bench, "")

    def stop(text):
        if text.startswith("following"):
            launching.stop(record.run, bench.events.append)

    ended = launching.attach(record.run, stop, bench.events.append)
    assert ended.status == "pass" and ended.reason.startswith("it was stopped after it was ready"), ended.reason


@here_only
def test_it_ends_when_nobody_reads_it_any_more(bench):
    record, go = server(bench, "sleep 60")
    follower = bench.cli("attach", record.run, "--log")
    wait_for(follower.stdout, "  | up")
    follower.stdout.close()
    go()
    assert follower.wait(20) in (0, 130)
    assert launching.stop(record.run, bench.events.append).payload["stopped"] is True
