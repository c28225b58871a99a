"""Servers: ready is real work by our own process, after which it is still there; and launches in order."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from launch_bench import READY, SERVER, free_port, here_only, log_of, serve, ssh_only, stage

from capturebook import cli
from capturebook import launch as launching
from capturebook.launch import procfs, readiness


def test_ready_means_real_work_by_our_process(bench):
    record = serve(bench)
    assert record.status == "pass", record.reason
    evidence = stage(record, "ready")["evidence"]
    assert evidence["answer"] == f"worked for {record.nonce}" and evidence["owner_is"] == "the program"
    # It answered for a while before it worked; its /health would have said ok.
    assert evidence["asked"] > 1 and not record.caveats
    assert len([line for line in bench.running() if "server.py" in line and "keeper" not in line]) == 1
    assert launching.stop(record.run, bench.events.append).status == "pass"


def test_a_server_that_says_ready_and_dies(bench, monkeypatch):
    monkeypatch.setattr(readiness, "SETTLE", 1.0)
    record = serve(bench, "dies")
    assert record.status == "fail" and record.payload["failed_stage"] == "ready"
    assert "exit status 7" in record.reason


@here_only
def test_a_server_on_every_address_is_reported(bench):
    record = serve(bench, env={"BIND": "0.0.0.0"})
    assert any("every address" in caveat for caveat in record.caveats)
    assert [line for line in bench.events if line.startswith("caveat: it listens on every address")]
    launching.stop(record.run, bench.events.append)


@ssh_only
def test_a_server_on_loopback_of_the_other_kind_is_asked_there(bench):
    record = serve(bench, env={"BIND": "::1"}, ready={**READY, "url": "http://[::1]:{port}/work"})
    assert record.status == "pass" and not record.caveats, record.reason
    launching.stop(record.run, bench.events.append)


@here_only
def test_a_daemon_of_ours_owns_the_port(bench):
    record = serve(bench, env={"DAEMON": "yes"})
    assert record.status == "pass" and stage(record, "ready")["evidence"]["owner_is"] == "a descendant", record.reason
    launching.stop(record.run, bench.events.append)
    assert not bench.running()


# Listens on loopback, and on every address of both kinds; says which ports it got.
WIDE = """\
import socket, time
kept = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("", 0))]
kept += [socket.create_server(("::", 0), family=socket.AF_INET6)] if socket.has_ipv6 else []
print("RESULT", *(one.getsockname()[1] for one in kept), flush=True)
time.sleep(1.6)
"""


@here_only
def test_what_else_can_be_reached_is_reported(bench):
    for ends in ({"ready": {"log": "^RESULT"}}, {"result": {"log": "^RESULT"}}):
        record = bench.script(WIDE, name="w.py", interpreter=[sys.executable], **ends)
        assert record.status == "pass", record.reason
        _, loopback, *wide = log_of(bench, record)[0].split()
        told = " ".join(record.caveats)
        assert all(f"every address, port {port}:" in told for port in wide) and f"port {loopback}:" not in told
        launching.stop(record.run, bench.events.append)


@here_only
def test_a_server_on_another_port_is_told(bench):
    other = free_port()
    bench.write("server.py", SERVER)
    command = [sys.executable, "{folder}/server.py", str(other)]
    record = bench.launch(command=command, files=["server.py"], port="auto", ready=READY, deadline=1.5)
    assert (record.status, record.payload["class"]) == ("timeout", "C10")
    assert f"but it listens on port {other}" in record.reason, record.reason


@pytest.mark.parametrize(
    ("address", "where", "loopback"),
    [
        ("0100007F", "127.0.0.1", True),
        ("00000000", "every address", False),
        ("0500000A", "10.0.0.5", False),
        ("00000000000000000000000001000000", "::1", True),
        ("0" * 32, "every address", False),
        ("0000000000000000FFFF00000100007F", "127.0.0.1", True),
        ("B80D0120000000000000000001000000", "2001:db8::1", False),
    ],
)
def test_where_a_socket_listens(address, where, loopback):
    found = procfs.Socket(1, "2", address)
    assert (found.where, found.loopback) == (where, loopback)


@here_only
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
def test_a_server_that_was_stopped_is_said_to_have_been(bench):
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", ready={"log": "^up"})
    # Two at once: whichever comes late finds it ended, as it was to be.
    with ThreadPoolExecutor(2) as pool:
        stops = list(pool.map(launching.stop, [record.run] * 2, [bench.events.append] * 2))
    assert [stop.status for stop in stops] == ["pass"] * 2
    again = launching.attach(record.run, bench.events.append)
    assert again.status == "fail" and "it was stopped after it was ready: exit status 143" in again.reason
    assert launching.Entry.open(record.run).verdict().status == "pass"


@here_only
def test_attach_to_a_server_long_after_its_deadline_leaves_it_alone(bench):
    record = serve(bench)
    entry = launching.Entry.open(record.run)

    def deadline(seconds):
        entry.info["resolved"]["deadline"] = seconds
        entry.save()

    deadline(2.0)
    time.sleep(max(0.0, 2.2 - record.payload["seconds"]))
    again = launching.attach(record.run, bench.events.append)
    assert again.status == "pass", again.reason
    os.kill(entry.info["program"][0], signal.SIGSTOP)
    deadline(0.5)
    hangs = launching.attach(record.run, bench.events.append)
    assert (hangs.status, hangs.payload["class"]) == ("timeout", "C10") and bench.running()
    os.kill(entry.info["program"][0], signal.SIGCONT)
    launching.stop(record.run, bench.events.append)


CLIENT = """\
import os, sys, urllib.request
print("RESULT", urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/work", timeout=10).read().decode(), flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("status", ["0", "5"])
@here_only
def test_two_launches_in_order_and_the_first_stopped_when_the_second_fails(bench, capsys, status):
    bench.write("server.py", SERVER)
    bench.write("client.py", CLIENT)
    first = bench.spec(
        name="prefill", script="server.py", interpreter=[sys.executable], args=["{port}"], port="auto", ready=READY
    )
    second = bench.spec(
        name="decode", script="client.py", args=["{prefill.port}", status], result={"log": "worked for"}
    )
    if status == "0":
        # By the command line.
        for spec in (first, second):
            path = bench.write(f"{spec.name}.yaml", yaml.safe_dump(spec.model_dump(exclude_unset=True)))
        assert cli.main(["launch", str(path.with_name("prefill.yaml")), str(path)]) == 0
        said = capsys.readouterr().err.strip().splitlines()
        records = [launching.Entry.open(name).records()[-1] for name in sorted(bench.ids(), reverse=True)]
    else:
        records = launching.launch_in_order([first, second], bench.host, bench.events.append)
    # The second really reached the first, which had warmed up before it was started.
    assert log_of(bench, records[1]) == [f"RESULT worked for {records[0].nonce}"]
    if status == "0":
        assert [record.status for record in records] == ["pass", "pass"]
        stop = said[-1].partition("; capturebook ")[2]
        assert stop == f"stop {records[0].run}" and cli.main(stop.split()) == 0
    else:
        assert [record.status for record in records] == ["pass", "fail", "pass"]
        assert records[2].run == records[0].run and records[2].payload["stopped"] is True
    with pytest.raises(launching.LaunchFileError, match="given to 2 launches"):
        launching.launch_in_order([first, first], bench.host, bench.events.append)
