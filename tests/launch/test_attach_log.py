"""`attach ID --log` of a ready server follows its log, as `journalctl -f` does, and never ends it."""

import contextlib
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from launch_bench import here_only, ssh_only

from capturebook import cli  # noqa: F401 (imported once, here, and not by each follower)
from capturebook import launch as launching
from capturebook.__main__ import main

UP = "echo up; until [ -e go ]; do sleep 0.05; done; echo seen since\n"


def server(bench, then: str):
    """A server that is ready and writes more once it is told to."""
    bench.write("up.sh", UP + then)
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    return record, Path(launching.Entry.open(record.run).info["folder"], "work/go").touch


@contextlib.contextmanager
def following(name: str):
    """`capturebook attach NAME --log` as a process: forked, for an interpreter of its own imports longer than it
    follows. Yields the process, its stdout and its stderr."""
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()

    def run():
        os.dup2(to_out, 1), os.dup2(to_err, 2)
        for end in (out, err, to_out, to_err):
            os.close(end)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["capturebook", "attach", name, "--log"]
        sys.exit(main())

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    os.close(to_out), os.close(to_err)
    try:
        with open(out) as stdout, open(err) as stderr:
            yield process, stdout, stderr
    finally:
        process.kill()
        process.join()


def wait_for(lines, text: str) -> None:
    assert any(text in line for line in lines)


@ssh_only
def test_it_follows_until_ctrl_c_which_leaves_the_server(bench):
    record, go = server(bench, "sleep 60")
    with following(record.run) as (follower, stdout, stderr):
        wait_for(stderr, "following its log")
        go()
        wait_for(stdout, "  | seen since")
        os.kill(follower.pid, signal.SIGINT)
        follower.join(20)
        said = stderr.read() if follower.exitcode is not None else "it goes on following"
    assert follower.exitcode == 0 and "pass: ready; it goes on" in said, said
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
    with following(record.run) as (follower, stdout, _):
        wait_for(stdout, "  | up")
        stdout.close()
        go()
        follower.join(20)
        assert follower.exitcode in (0, 130)
    assert launching.stop(record.run, bench.events.append).payload["stopped"] is True
