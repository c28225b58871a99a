"""Programs that flood their log, leave zombies, ignore signals or print what is secret."""

from launch_bench import here_only, log_of, ssh_only, stage

from capturebook import launch as launching


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


@here_only
def test_an_inherited_secret_is_redacted_at_the_source(bench, monkeypatch):
    monkeypatch.setenv("SOME_PASSWORD", "inherited-one")
    record = bench.script("echo RESULT $SOME_PASSWORD\n", result={"log": "RESULT"})
    assert log_of(bench, record) == ["RESULT [redacted]"]
    kept = [path for path in bench.root.rglob("*") if path.is_file() and b"inherited-one" in path.read_bytes()]
    assert kept == []


@ssh_only
def test_options_with_a_telling_name_and_those_who_attach_show_no_secret(bench):
    bench.write("up.sh", "echo up $*; while :; do sleep 0.1; done\n")
    args = ["--api-key", "option's one", "--hf-token=option-two", "$MY", "--max-tokens", "1234567"]
    env = {"MY_TOKEN": "env-three"}
    record = bench.launch(script="up.sh", args=[*args, env["MY_TOKEN"]], env=env, ready={"log": "^up"})
    again = launching.attach(record.run, bench.events.append)
    assert (record.status, again.status) == ("pass", "pass"), again.reason
    shown = stage(again, "identity")["evidence"]["command"]
    assert shown.count("[redacted]") == 3 and "--max-tokens 1234567" in shown
    launching.stop(record.run, bench.events.append)
    told = "".join(bench.events) + "".join(r.to_line() for r in launching.Entry.open(record.run).records())
    kept = {path: path.read_bytes() for path in bench.root.rglob("*") if path.is_file()}
    for secret in ("option's one", "option-two", "env-three"):
        assert secret not in told and not [path for path, data in kept.items() if secret.encode() in data]
