"""C1 to C18, each planted: it cannot happen (the diagnostic runs and its result is right), or it is named."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch_bench import READY, free_port, here_only, log_of, serve, stage

from capturebook import launch as launching
from capturebook.launch.classes import CLASSES


def both(plants: dict, over_ssh: tuple[str, ...]) -> list[tuple[str, str]]:
    """All plants here, and those whose name begins so over ssh too: what differs there is the transport alone. One
    that takes seconds is asked over ssh alone."""
    here = [name for name in plants if name not in SLOW]
    return [("here", name) for name in here] + [("ssh", name) for name in plants if name.startswith(over_ssh)]


SLOW = ("C13: past the deadline",)
# Class, script, fields. The script's last line proves that all of it ran.
CANNOT_HAPPEN = {
    "C1: a child reads standard input": (
        "#!/bin/sh\necho one\ncat >/dev/null\nread -r line\nhead -c 100 >/dev/null\necho RESULT=$((6 * 7))\n",
        {"result": {"log": "^RESULT=42$"}},
    ),
    "C2: expansion on this side": (
        '#!/bin/bash\nvalue=there\ncat <<EOF2\nRESULT=$value $((6 * 7)) `echo sub` "$(printf quoted)" \\$HOME\nEOF2\n',
        {"result": {"log": r'^RESULT=there 42 sub "quoted" \$HOME$'}},
    ),
    "C4: a background child holds the channel": (
        "sleep 300 &\nsetsid sleep 301 &\n(setsid sleep 302 >/dev/null 2>&1 &)\necho RESULT=42\n",
        {"result": {"log": "RESULT=42"}},
    ),
    "C15: a Triton kernel in a script": (
        "import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n\nprint('RESULT', type(kernel).__name__)\n",
        {"name": "k.py", "interpreter": [sys.executable], "result": {"log": "RESULT JITFunction"}},
    ),
    "C16: processes spawned from a script": (
        "import multiprocessing\n\ndef square(x):\n    return x * x\n\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print('RESULT', pool.map(square, [6, 7]))\n",
        {"name": "m.py", "interpreter": [sys.executable], "result": {"log": r"RESULT \[36, 49\]"}},
    ),
}


@pytest.mark.parametrize(("bench", "plant"), both(CANNOT_HAPPEN, ("C1", "C2", "C4")), indirect=["bench"])
def test_it_cannot_happen(bench, plant):
    text, fields = CANNOT_HAPPEN[plant]
    fields = {"name": "t.sh", **fields}
    began = time.monotonic()
    record = bench.script(text, **fields)
    assert record.status == "pass", record.reason
    assert time.monotonic() - began < 60
    if plant.startswith("C4"):
        assert any("sleep (3)" in caveat for caveat in record.caveats)


# Class, the stage that names it, status, words of the reason, script, fields.
NAMED = {
    "C3: an indented here-document terminator": (
        ("C3", "syntax", "not_run", "here-document at line 2"),
        "#!/bin/bash\ncat >run.py <<'EOF2'\nprint(1)\n  EOF2\npython3 run.py\necho RESULT\n",
        {},
    ),
    "C3: the same for sh, where dash -n is silent": (
        ("C3", "syntax", "not_run", "here-document at line 2"),
        "#!/bin/sh\ncat >run.py <<'EOF2'\nprint(1)\n  EOF2\npython3 run.py\necho RESULT\n",
        {},
    ),
    "C3: a script that is delivered beside it": (
        ("C3", "syntax", "not_run", "helper: line 5: warning: here-document at line 2"),
        "#!/bin/sh\nsh ./helper\necho RESULT\n",
        {"files": ["helper"]},
    ),
    "C3: CR line ends": (("C3", "syntax", "not_run", "CR line end in line 1"), "#!/bin/sh\r\necho RESULT\r\n", {}),
    "C3: a Python script that does not parse": (
        ("C3", "syntax", "not_run", "SyntaxError"),
        "print('RESULT'\n",
        {"name": "p.py"},
    ),
    "C5: the interpreter is not there": (
        ("C5", "syntax", "not_run", "no python there"),
        "print('RESULT')\n",
        {"name": "p.py", "interpreter": ["/nowhere/python3"]},
    ),
    "C6: the log's folder is missing, in the background": (
        ("C6", "end", "not_run", "no line of its output"),
        "#!/bin/sh\nsh -c 'echo RESULT' >nosuch/out.log 2>&1 &\nwait\nexit 0\n",
        {},
    ),
    "C6: the folder to run in is missing": (
        ("C6", "environment", "not_run", "nosuch"),
        "echo RESULT\n",
        {"cwd": "/nosuch/folder"},
    ),
    "C7: an exit status is lost in a pipe": (
        ("C7", "end", "not_run", "exit status 0, but no line"),
        "#!/bin/sh\nsh -c 'exit 3' | cat\necho finished\n",
        {},
    ),
    "C7: an exit status is lost in the background": (
        ("C7", "end", "not_run", "exit status 0, but no line"),
        "#!/bin/sh\nsh -c 'exit 3' &\nwait\n",
        {},
    ),
    "C8: an old result": (
        ("C8", "end", "not_run", "was there before"),
        "import sys\nsys.exit(0)\n",
        {"name": "p.py", "cwd": "{old}", "result": {"file": "result.txt", "contains": "PASS"}},
    ),
    "C11: the result is empty": (
        ("C11", "end", "not_run", "is empty"),
        ": >result.txt\n",
        {"result": {"file": "result.txt"}},
    ),
    "C11: the result is no file": (
        ("C11", "end", "not_run", "is no file but a fifo"),
        "mkfifo result.txt\n",
        {"result": {"file": "result.txt"}},
    ),
    "C13: past the deadline": (
        ("C13", "end", "timeout", "no end within 1 s"),
        "setsid sleep 311 &\nsh -c 'trap \"\" TERM; sleep 312; sleep 313'\n",
        {"deadline": 1},
    ),
    "C14: set -e is off in a condition": (
        ("C14", "end", "not_run", "exit status 0, but no line"),
        "#!/bin/bash\nset -e\nstep() { local x=$(false); false; echo went on; }\nif step; then echo fine; fi\n",
        {},
    ),
    "C17: a notebook's kernel died and the caller went on": (
        ("C17", "end", "not_run", "no line of its output"),
        "#!/bin/sh\n{python} -m papermill --no-progress-bar die.ipynb out.ipynb || true\necho finished\n",
        {"files": ["die.ipynb"]},
    ),
}
DIE = (
    '{"cells":[{"cell_type":"code","execution_count":null,"id":"a","metadata":{},"outputs":[],"source":'
    '"import os; os._exit(1)"}],"metadata":{"kernelspec":{"name":"python3","display_name":"p","language":"python"}},'
    '"nbformat":4,"nbformat_minor":5}'
)


@pytest.mark.parametrize(("bench", "plant"), both(NAMED, ("C3: an", "C8", "C13", "C14")), indirect=["bench"])
def test_it_is_named(bench, plant):
    (klass, where, status, words), text, fields = NAMED[plant]
    fields = {"name": "t.sh", "result": {"log": "^RESULT"}, **fields}
    old = bench.root / "old"
    old.mkdir()
    (old / "result.txt").write_text("PASS\n")
    bench.write("die.ipynb", DIE)
    bench.write("helper", "#!/bin/bash\ncat >run.py <<'E'\nprint(1)\n  E\npython3 run.py\n")
    if "cwd" in fields:
        fields["cwd"] = fields["cwd"].replace("{old}", str(old))
    began = time.monotonic()
    record = bench.script(text.replace("{python}", sys.executable), **fields)
    assert (record.payload["class"], record.payload["failed_stage"]) == (klass, where), record.reason
    assert record.status == status and words in record.reason
    assert record.payload["todo"] and any(klass in event for event in bench.events)
    assert time.monotonic() - began < 60


def command(bench, *words, **fields):
    return bench.launch(command=list(words), **{"result": {"log": "^RESULT"}, **fields})


@here_only
def test_c1_code_on_standard_input_is_named(bench):
    record = command(bench, "bash")
    assert record.payload["class"] == "C1" and record.status == "not_run"


@here_only
def test_c2_a_file_altered_on_its_way_is_named(bench, monkeypatch):
    from capturebook.launch.host import Host

    whole = Host.deliver
    # A transport that changes line ends, as an editor or a text-mode copy does.
    monkeypatch.setattr(Host, "deliver", lambda self, p, data, mode: whole(self, p, data.replace(b"\n", b"\r\n"), mode))
    record = bench.script("echo RESULT\n", result={"log": "RESULT"})
    assert (record.payload["class"], record.payload["failed_stage"]) == ("C2", "deliver")


@here_only
def test_c5_a_command_that_is_not_there(bench):
    record = command(bench, "no-such-command", "x")
    assert (record.payload["class"], record.payload["failed_stage"]) == ("C5", "environment")
    assert record.status == "not_run" and "no-such-command" in record.reason


def test_c5_a_program_that_cannot_be_executed(bench):
    broken = bench.write("broken", "#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    record = command(bench, str(broken))
    assert (record.payload["class"], record.payload["failed_stage"]) == ("C5", "identity"), record.reason
    assert record.status == "not_run"


def test_c5_the_recorded_process_is_the_program_itself(bench):
    record = bench.script("echo RESULT $$; sleep 0.5\n", result={"log": "RESULT"})
    evidence = stage(record, "identity")["evidence"]
    assert log_of(bench, record) == [f"RESULT {evidence['pid']}"]
    assert (evidence["session"], evidence["stdin"]) == ("its keeper's", "/dev/null")


def test_c9_an_old_server_holds_the_port(bench):
    port = free_port()
    old = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], stderr=-3)
    try:
        until_listening(port)
        began = time.monotonic()
        record = command(bench, "sleep", "5", port=port)
        assert (record.payload["class"], record.payload["failed_stage"]) == ("C9", "port")
        assert f"process {old.pid}" in record.reason and "http.server" in record.reason
        assert time.monotonic() - began < 10
    finally:
        old.kill()
        old.wait()


@here_only
def test_c10_a_server_that_never_works_is_not_ready(bench):
    # Its /health says ok at once; the work that is asked for never comes.
    record = serve(bench, ready={"url": READY["url"], "expect": "something else"}, deadline=2)
    assert (record.status, record.payload["class"]) == ("timeout", "C10")
    assert "without the expected text" in record.reason


def until_listening(port: int) -> None:
    import socket

    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("nothing listens")


@here_only
def test_c12_stop_ends_the_recorded_process_and_no_other(bench):
    bench.write("twin.sh", "echo up; sleep 0.2; while :; do sleep 0.1; done\n")
    fields = {"script": "twin.sh", "ready": {"log": "^up"}}
    first, second = bench.launch(**fields), bench.launch(**fields)
    assert (first.status, second.status) == ("pass", "pass"), first.reason
    launching.stop(first.run, bench.events.append)
    alive = bench.running()
    assert len([line for line in alive if second.run in line and "twin.sh" in line]) == 1
    assert not any(first.run in line for line in alive)
    launching.stop(second.run, bench.events.append)


def test_c12_a_number_that_is_another_process_now_is_not_signalled(bench):
    from capturebook.launch.channel import Channel
    from capturebook.launch.host import Host, Refused

    other = subprocess.Popen(["sleep", "60"])
    try:
        with Channel(bench.host) as channel:
            host = Host(channel)
            boot = host.facts().boot
            with pytest.raises(Refused, match="may be another process"):
                host.signal(boot, (other.pid, 1), "KILL")
            with pytest.raises(Refused, match="restarted"):
                host.signal("another boot", (other.pid, 1), "KILL")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@here_only
def test_c11_a_poll_that_reads_nothing_is_an_error_at_once(bench):
    bench.write("t.sh", "echo up; sleep 20\n")
    record = bench.launch(script="t.sh", ready={"log": "^up"})
    nonce = Path(launching.Entry.open(record.run).info["folder"], "nonce")
    kept = nonce.read_text()
    nonce.write_text("")
    nothing = launching.attach(record.run, bench.events.append)
    assert (nothing.status, nothing.payload["class"]) == ("not_run", "C11")
    assert "read nothing" in nothing.reason and bench.running()
    nonce.write_text(kept)
    launching.stop(record.run, bench.events.append)


@here_only
def test_c15_a_triton_kernel_in_minus_c_is_named(bench):
    record = command(bench, sys.executable, "-c", "import triton\n@triton.jit\ndef k(): pass")
    assert (record.payload["class"], record.payload["failed_stage"]) == ("C15", "syntax")


@here_only
def test_c16_spawn_from_minus_c_is_named_by_its_log(bench):
    code = (
        "import multiprocessing as m\ndef f(): print(1)\np = m.get_context('spawn').Process(target=f)\n"
        "p.start(); p.join(); print('finished')"
    )
    record = command(bench, sys.executable, "-c", code)
    assert (record.status, record.payload["class"]) == ("not_run", "C16"), record.reason


def test_c18_a_setting_that_a_wrapper_drops(bench):
    record = command(bench, "env", "-u", "MY_FLAG", "sh", "-c", "echo RESULT; sleep 4", env={"MY_FLAG": "0"})
    assert record.payload["class"] == "C18" and record.status == "not_run", record.reason
    assert "MY_FLAG was to be '0' and is not set" in record.reason


@here_only
def test_c18_an_effective_value_is_recorded(bench):
    record = command(bench, "sh", "-c", "echo RESULT $TORCH_X", env={"TORCH_X": "1"})
    assert stage(record, "environment")["evidence"]["variables"]["TORCH_X"] == "1"
    assert log_of(bench, record) == ["RESULT 1"]


def test_nothing_of_the_caller_reaches_a_program_over_ssh(bench, monkeypatch):
    monkeypatch.setenv("ONLY_HERE", "yes")
    record = command(bench, "sh", "-c", 'echo "RESULT [$ONLY_HERE]"')
    assert log_of(bench, record) == ["RESULT [yes]" if bench.host is None else "RESULT []"]
    assert os.environ["ONLY_HERE"] == "yes"


def test_every_class_is_planted():
    tests = [name.removeprefix("test_") for name in globals() if name.startswith("test_c")]
    planted = {name.split(":")[0].split("_")[0].upper() for name in [*CANNOT_HAPPEN, *NAMED, *tests]}
    assert planted == set(CLASSES) == {f"C{number}" for number in range(1, 19)}
