"""The launcher on this machine and over a real sshd: stages, evidence, redaction, attach and stop."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from launch_bench import Bench, here_only, log_of, ssh_only, stage

from capturebook import cli
from capturebook import launch as launching
from capturebook.launch.stages import STAGES
from capturebook.report import launch_page

# Everything in which a value could be taken for shell text.
NASTY = "a  b 'q' \"d\" $(echo X) `echo Y` $HOME \\ \n;& line2 *? {x} ~ \x01 é"


def test_every_stage_is_proven_in_order(bench):
    record = bench.script("echo working; echo RESULT=42\n", result={"log": "RESULT=42"})
    assert record.status == "pass" and record.stage == "done"
    # A script has nothing to be ready for: that is no stage of it, and not one that it failed to reach.
    stages = [(entry["name"], entry["state"]) for entry in record.payload["stages"]]
    assert stages == [(name, "held") for name in STAGES if name != "ready"]
    assert stage(record, "end")["evidence"]["line"] == "RESULT=42"
    assert record.payload["log_tail"] == ["working", "RESULT=42"]
    # The program's own process, from /proc: not the keeper, not a wrapper.
    assert stage(record, "identity")["evidence"]["pid"] > 1
    text = record.to_line()
    assert str(bench.root) not in text and os.path.expanduser("~") not in text.replace('"~', "")


def test_values_arrive_as_they_are(bench):
    code = "import json, os, sys; print('GOT', json.dumps([sys.argv[1:], os.environ['V'], os.getcwd()]))"
    folder = bench.root / "a folder $(touch pwned) 'x'"
    folder.mkdir()
    bench.write("say $(id) 'it'.py", code)
    record = bench.launch(
        script="say $(id) 'it'.py",
        args=[NASTY, "", "-n", "--"],
        interpreter=["python3"],
        env={"V": NASTY},
        cwd=str(folder),
        result={"log": "^GOT "},
    )
    assert record.status == "pass", record.reason
    got = json.loads(log_of(bench, record)[-1].removeprefix("GOT "))
    assert got == [[NASTY, "", "-n", "--"], NASTY, str(folder)]
    assert not list(bench.root.rglob("pwned"))


def test_nothing_in_a_launch_file_is_taken_for_shell_text(bench):
    odd = NASTY.replace("/", "")
    bench.write(f"{odd}/in", "delivered")
    code = "import sys; open('out ' + sys.argv[1], 'w').write(open(sys.argv[2]).read() + ' ' + sys.argv[1])"
    record = bench.launch(
        name=NASTY,
        command=["python3", "-c", code, odd, "{folder}/" + odd + "/in"],
        files=[f"{odd}/in"],
        folder=str(bench.root / "remote home" / odd),
        result={"file": "out " + odd, "contains": "^delivered " + re.escape(odd.split("\n")[0])},
        failed=[re.escape(NASTY)],
        phases={NASTY: re.escape(NASTY)},
    )
    assert record.status == "pass", record.reason
    assert record.payload["name"] == NASTY and not list(bench.root.rglob("X"))
    assert launch_page.build(launching.Entry.open(record.run).path).is_file()


def test_delivered_files_are_byte_for_byte(bench):
    blob = bytes(range(256)) * 5000
    bench.write("data $(x)\n.bin", blob)
    record = bench.script(
        'sha256sum <"$1"\n', args=["{folder}/in/blob"], files={"in/blob": "data $(x)\n.bin"}, result={"log": "  -$"}
    )
    import hashlib

    assert record.payload["log_tail"] == [f"{hashlib.sha256(blob).hexdigest()}  -"]


def test_secrets_are_nowhere(bench, monkeypatch):
    secret, token = "s3cr3t 'quoted' $(id)", "tok-abcdef"
    monkeypatch.setenv("MY_LOGIN", secret)
    record = bench.script(
        'echo "say $MY_LOGIN and $API_TOKEN twice $API_TOKEN"; env | sort; cat /proc/$PPID/cmdline | tr "\\0" " "; '
        "echo DONE $MAX_TOKENS\n",
        secret=["MY_LOGIN"],
        env={"API_TOKEN": token, "MAX_TOKENS": "512"},
        args=[token],
        result={"log": "DONE 512"},
    )
    assert record.status == "pass", record.reason
    assert "say [redacted] and [redacted] twice [redacted]" in log_of(bench, record)
    shown = record.to_line() + "".join(bench.events)
    assert secret not in shown and token not in shown
    for path in bench.root.rglob("*"):
        if path.is_file() and "local" not in path.parts:
            data = path.read_bytes()
            assert secret.encode() not in data and token.encode() not in data, path


def test_wrong_exit_status_is_a_failure_with_its_last_lines(bench):
    record = bench.script("echo RESULT; echo oops >&2; exit 3\n", result={"log": "RESULT"})
    assert record.status == "fail" and "exit status 3" in record.reason and "oops" in record.reason


def test_a_failed_pattern_ends_it_at_once(bench):
    began = time.monotonic()
    record = bench.script("echo loading; echo FATAL no such model; sleep 60\n", result={"log": "OK"}, failed=["^FATAL"])
    assert record.status == "fail" and "FATAL no such model" in record.reason
    assert time.monotonic() - began < 15


def test_a_later_failure_is_placed_in_its_phase(bench):
    record = bench.script(
        "echo Loading weights; sleep 0.6; echo Capturing graphs; sleep 0.4; exit 1\n",
        result={"log": "never"},
        phases={"load": "Loading", "capture": "Capturing"},
    )
    # An exit status is what it failed with; the timeline says when each phase began.
    begun = {entry["phase"]: entry["at"] for entry in record.payload["timeline"]}
    assert begun["start"] == 0 and 0.4 < begun["capture"] - begun["load"] < 2
    (shown,) = [event for event in bench.events if event.startswith("timeline")]
    assert f"start 0, load {begun['load']:g}, capture {begun['capture']:g}; last seen" in shown
    assert record.status == "fail"


def test_the_launch_survives_its_caller_and_another_stops_it(bench):
    bench.write("long.sh", "trap 'echo got TERM; exit 9' TERM\necho up\nwhile :; do sleep 0.1; done\n")
    bench.write("long.yaml", "script: long.sh\nresult: {log: never}\n")
    args = ["launch", "long.yaml", *(["--host", bench.host] if bench.host else [])]
    caller = bench.cli(*args)
    for line in caller.stderr:
        if line.startswith("log "):
            break
    caller.send_signal(signal.SIGINT)
    rest = caller.communicate(timeout=20)[1]
    assert caller.returncode == 130 and "goes on" in rest
    (name,) = bench.ids()
    assert len([line for line in bench.running() if line.endswith("work/long.sh ")]) == 1
    follower = bench.cli("attach", name, "--log")
    for line in follower.stdout:
        if line == "  | up\n":
            break
    stopped = launching.stop(name, bench.events.append)
    assert stopped.status == "pass" and stopped.payload["exit"]["rc"] == "9"
    # Nothing was delivered or started by a stop, so it lists no such stage.
    assert [entry["name"] for entry in stopped.payload["stages"]] == ["connect", "folder", "end"]
    assert "exit status 9" in follower.communicate(timeout=20)[1] and follower.returncode == 3
    again = launching.stop(name, bench.events.append)
    assert "had ended before" in again.reason
    # Whoever looks later sees an end that was asked for.
    launching.attach(name, bench.events.append)
    assert launching.Entry.open(name).verdict().reason.startswith("stopped by its recorded process: exit status 9")
    # The follower saw an end without its result, the two stops what they asked for.
    assert sorted(record.status for record in launching.Entry.open(name).records()) == ["fail", "fail", "pass", "pass"]


@ssh_only
def test_the_command_line_says_and_lists(bench, capsys):
    bench.write("ok.sh", "echo RESULT\n")
    bench.write("ok.yaml", "script: ok.sh\nresult: {log: RESULT}\n")
    done = bench.cli("launch", "ok.yaml", "--json", "--host", bench.host)
    out, err = done.communicate(timeout=30)
    assert done.returncode == 0 and json.loads(out)["status"] == "pass", err
    shown = [line.split()[0] for line in err.splitlines()]
    assert shown[1:] == [*(name for name in STAGES if name != "ready"), "timeline", "pass"]
    assert cli.main(["launches"]) == 0
    listed = capsys.readouterr().out
    assert json.loads(out)["run"] in listed and "ended" in listed
    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    path = bench.write("up.yaml", "script: up.sh\nready: {log: ^up}\n")
    assert cli.main(["launch", str(path), "--host", bench.host]) == 0
    stop = capsys.readouterr().err.strip().splitlines()[-1].partition("; capturebook ")[2]
    assert cli.main(stop.split()) == 0 and not bench.running()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("script: t.sh\n", "ready, result, adapter: needs one of them"),
        ("result: {log: x}\n", "command: needs one of command and script"),
        ("script: t.sh\nresult: {exit: 0}\n", "result: needs log or file"),
        ("script: t.sh\nresult: {log: '('}\n", "result.log: given '('; no regular expression"),
        ("script: t.sh\nresult: {log: ''}\n", "result.log: given ''; matches nothing at all as well"),
        ("script: t.sh\nresult: {file: x, contains: 'x*'}\n", "result.contains: given 'x*'; matches nothing at all"),
        ("script: t.sh\nport: auto\nready: {url: 'http://127.0.0.1:{port}/', expect: ''}\n", "ready.expect: given ''"),
        ("script: t.sh\nresult: {log: x}\nenv: {A: 1}\n", "env.A: given 1;"),
        ("script: t.sh\nresult: {log: x}\nenv: {A-B: x}\n", "env.A-B"),
        ("script: gone.sh\nresult: {log: x}\n", "script: 'gone.sh' is no file"),
        ("script: t.sh\nresult: {log: x}\nport: 70000\n", "port"),
        ("script: t.sh\nresult: {log: x}\nporte: 70000\n", "porte: no such field; allowed: name, command"),
        ("script: t.sh\nresult: {log: x}\nfiles: ['../x']\n", "without '..'"),
        ("script: t.sh\nresult: {log: x}\nfiles: {../x: t.sh}\n", "without '..'"),
        ("script: t.sh\nresult: {log: x}\nfiles: 3\n", "files: given 3; input should be a valid list"),
        ('command: [echo, "\\ud800"]\nresult: {log: x}\n', r"command.1: given '\ud800'; half a surrogate pair"),
        ('script: t.sh\nresult: {log: x}\nenv: {A: "\\ud800"}\n', "half a surrogate pair"),
        ("script: t.sh\nresult: {log: x}\nsecret: [NOT_SET_ANYWHERE]\n", "NOT_SET_ANYWHERE is not set"),
        ("script: t.sh\nready: {url: 'http://127.0.0.1:1/x'}\n", "url and expect go together"),
        ("script: t.sh\n script: y\n", "line 2"),
        ("script: t.sh\nresult: {log: x}\nsource: /etc\n", "source: no such field"),
        ("script: t.sh\nresult: {log: x}\nfiles: {t.sh: u.sh}\n", "files: 't.sh' is the script's name"),
        ("script: t.sh\nresult: {log: x}\nfolder: ~nobody-here\n", "folder: given '~nobody-here'"),
        (
            "script: t.sh\nresult: {log: x}\nfiles: {m: /proc/self/mem}\n",
            "files: 'm' cannot be read: Input/output error",
        ),
    ],
)
def test_bad_launch_files_are_one_line_and_start_nothing(tmp_path, monkeypatch, text, says):
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    bench = Bench(tmp_path)
    bench.write("t.sh", "echo\n")
    path = bench.write("t.yaml", text)
    with pytest.raises(launching.LaunchFileError) as caught:
        launching.launch(launching.load(path), None, bench.events.append)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not bench.ids()


@pytest.mark.parametrize("target", ["nowhere", "sub"])
def test_a_link_in_a_delivered_folder_is_not_left_out_unsaid(tmp_path, target):
    bench = Bench(tmp_path)
    bench.write("data/sub/file", "x")
    (tmp_path / "local/data/link").symlink_to(target)
    with pytest.raises(launching.LaunchFileError, match="^files: 'data/link' is no file; allowed in a folder"):
        bench.spec(command=["true"], result={"log": "x"}, files=["data"]).deliveries()


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("127.0.0.1:{port}/health", 8000),
        ("not a url", 8000),
        ("ftp://127.0.0.1:{port}/x", 8000),
        ("http://127.0.0.1/x", 8000),
        ("http://127.0.0.1:8001/x", 8000),
        ("http://127.0.0.1:8001/x", "auto"),
        ("http://10.0.0.1:{port}/x", 8000),
        ("http://127.0.0.1:{port}@10.0.0.1/x", 8000),
        ("http://127.0.0.1:{port}.example.org/x", 8000),
    ],
)
def test_an_answer_from_elsewhere_is_no_readiness(tmp_path, capsys, url, port):
    path = tmp_path / "t.yaml"
    path.write_text(f"command: [sleep, '60']\nport: {port}\nready: {{url: '{url}', expect: x}}\n")
    assert cli.main(["launch", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "ready.url: given" in err and "allowed: http://127.0.0.1:{port}" in err


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x?{nonce}", "http://localhost:8000", "http://[::1]:8000/"])
def test_an_answer_from_its_own_port_is_asked_for(url):
    ready = {"url": url, "expect": "x"}
    assert launching.validated({"command": ["x"], "port": 8000, "ready": ready}).ready.url == url


@here_only
def test_outputs_that_cannot_be_written_are_one_line(bench, capsys):
    (bench.root / "outputs").write_text("")
    path = bench.write("t.yaml", "command: [echo, x]\nresult: {log: x}\n")
    assert cli.main(["launch", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "outputs" in err and "Not a directory" in err, err
    (bench.root / "outputs").unlink()


@pytest.mark.parametrize("grace", ["nan", "inf", "-1"])
def test_a_grace_that_never_ends_is_refused(bench, capsys, grace):
    assert cli.main(["stop", "x", f"--grace={grace}"]) == 2
    assert capsys.readouterr().err.count("allowed: seconds, 0 or more") == 1


@here_only
def test_names_are_replaced_in_patterns_as_plain_text(bench):
    record = bench.script('echo "at $1 on $2"\n', args=["{folder}", "{port}"], port="auto",
                          result={"log": "^at {folder} on {port}$"})  # fmt: skip
    assert record.status == "pass", record.reason


@here_only
def test_launches_are_listed_under_headings_in_columns(bench, capsys):
    (bench.root / "ssh_config").write_text("Host far.away.example\n HostName nosuch.invalid\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CAPTUREBOOK_SSH", f"ssh -F {bench.root}/ssh_config")
        for name, host in (("short", None), ("a-much-longer-name", "far.away.example")):
            launching.launch(bench.spec(name=name, command=["true"], result={"log": "x"}), host, bench.events.append)
    assert cli.main(["launches"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["LAUNCH", "STATE", "HOST", "CAME", "OUT"]
    state, host, last = (heading.index(word) for word in ("STATE", "HOST", "CAME OUT"))
    assert [row[state:host].strip() for row in rows] == ["ended", "not started"]
    assert [row[host:last].strip() for row in rows] == ["here", "far.away.example"]
    assert rows[0][last:].startswith("not run: exit status 0, but no line")
    assert rows[1][last:].startswith("not run: ssh cannot reach <host>: its name is not resolved")


@here_only
@pytest.mark.parametrize("text", ["{", "[]", '{"schema_version": 1, "id": "x"}', '{"schema_version": 2}'])
def test_a_damaged_launch_is_one_line(bench, capsys, text):
    folder = bench.root / "outputs/launches/x"
    folder.mkdir(parents=True)
    (folder / "launch.json").write_text(text)
    for words in (["launches"], ["attach", "x"], ["stop", "x"]):
        assert cli.main(words) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "outputs/launches/x/launch.json" in err, err
    (folder / "launch.json").unlink()


@here_only
def test_who_stops_a_comparison_is_told_that_its_server_goes_on(bench):
    from standin import written

    bench.write("up.sh", "echo up; while :; do sleep 0.1; done\n")
    path = written(bench, load=None)
    bench.write("server.yaml", "script: up.sh\nargs: [--compile]\nready: {log: never}\n")
    caller = bench.cli("run", str(path))
    for line in caller.stderr:
        if line.startswith("log "):
            break
    caller.send_signal(signal.SIGTERM)
    rest = caller.communicate(timeout=20)[1]
    assert caller.returncode == 143 and "goes on without us" in rest
    launching.stop(bench.ids()[0], bench.events.append)


def test_the_shell_files_parse_everywhere():
    from importlib import resources

    for name in ("functions", "agent", "keeper"):
        for shell in ("dash", "bash"):
            path = resources.files("capturebook.launch") / "sh" / f"{name}.sh"
            assert subprocess.run([shell, "-n", path], capture_output=True, text=True).stderr == ""


def test_the_example_of_the_readme(tmp_path, monkeypatch, repo):
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    bench = Bench(tmp_path)
    spec = launching.load(repo / "examples/launch_check.yaml")
    record = launching.launch(spec, None, bench.events.append)
    assert record.status == "pass" and log_of(bench, record)[-1] == f"RESULT {record.nonce}"
    server = launching.load(repo / "examples/launch_server.yaml")
    assert server.adapter == "sglang" and server.env == {"SGLANG_SM120_MMA_FLASHMLA": "0"}
