"""Secrets that are short, stand in commands, or are words that the launcher uses itself."""

import subprocess

import pytest
from launch_bench import here_only, log_of, serve

from capturebook import launch as launching
from capturebook.launch.redact import Redactor
from capturebook.launch.starttext import start_text


def _shown(bench, record) -> str:
    files = [path for path in bench.root.rglob("*") if path.is_file() and "local" not in path.parts]
    return record.to_line() + "".join(bench.events) + "".join(path.read_text() for path in files)


@here_only
def test_a_short_secret_is_hidden_where_it_is_a_word(bench, monkeypatch):
    monkeypatch.setenv("PIN", "zq9x")
    monkeypatch.setenv("SIGN", "%@")
    record = bench.script(
        'echo "is $PIN, azq9xb, $SIGN$SIGN a/b"; echo $PIN; echo DONE\n', secret=["PIN", "SIGN"], result={"log": "DONE"}
    )
    assert record.status == "pass", record.reason
    assert log_of(bench, record)[:2] == ["is [redacted], azq9xb, [redacted][redacted] a/b", "[redacted]"]
    shown = _shown(bench, record).replace("azq9xb", "")
    assert "zq9x" not in shown and "%@" not in shown


def test_the_host_and_we_redact_alike(tmp_path):
    redactor = Redactor(["A", "B", "C"])
    redactor.add({"A": "a", "B": "long secret", "C": "x\nab\n{"})
    hidden = [value for value in redactor.values if "\n" not in value]
    text = start_text(["true"], "/", {}, hidden, "0").decode()
    for line in ("a", "a/b a", "aa a_a ab", "{ab} a long secret", "", "x", "abab -a-"):
        ran = subprocess.run(
            ["sh", "-c", f"{text}\ncb_line=$1; redact_line; printf %s \"$cb_line\"", "sh", line],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ran.stdout == redactor.text(line), line
    assert redactor.text("{a aa x ab}") == "{[redacted] aa [redacted] [redacted]}"


@here_only
def test_secrets_in_a_command_are_nowhere(bench):
    words = ["env", "HF_TOKEN=first-one", "sh", "-c", "API_KEY=second-one; echo $HF_TOKEN $API_KEY $* DONE", "sh"]
    words += [
        "--authToken=third-one",
        "--apiKey",
        "fourth-one",
        "Authorization: Bearer fifth-one",
        "--max-tokens=1234567",
    ]
    record = bench.launch(command=words, result={"log": "DONE"})
    assert record.status == "pass", record.reason
    shown = _shown(bench, record)
    assert not [name for name in ("first", "second", "third", "fourth", "fifth") if f"{name}-one" in shown]
    assert "--max-tokens=1234567" in shown
    record = bench.script("echo $1 DONE\n", args=["HF_TOKEN=sixth-one"], result={"log": "DONE"})
    assert log_of(bench, record) == ["HF_TOKEN=[redacted] DONE"] and "sixth-one" not in _shown(bench, record)


def test_what_stages_go_by_is_kept_whole(bench, monkeypatch):
    monkeypatch.setenv("PIN", "1")
    record = serve(bench, secret=["PIN"], failed=["ERROR 1"], phases={"up": "^listening"})
    assert record.status == "pass", record.reason
    assert launching.stop(record.run, bench.events.append).status == "pass"
    record = bench.script(
        "echo 'said [redact]'; echo rated capturebook >res; echo got $DB_PASSWORD\n",
        env={"DB_PASSWORD": "capturebook"},
        failed=["said capturebook"],
        result={"file": "res", "contains": "rated", "log": "^got capturebook$"},
    )
    assert record.status == "pass", record.reason
    record = bench.script(
        "echo said $DB_PASSWORD\n", env={"DB_PASSWORD": "capturebook"}, failed=["said capturebook"], result={"log": "x"}
    )
    assert record.status == "fail" and "its log says: said [redacted]" in record.reason


@pytest.mark.parametrize("word", ["capturebook", "launch", "command", "resolved", "DB_PASSWORD"])
@here_only
def test_a_secret_that_is_a_word_of_ours_changes_no_stage(bench, word):
    bench.write("up.sh", "echo up $DB_PASSWORD; while :; do sleep 0.1; done\n")
    record = bench.launch(script="up.sh", env={"DB_PASSWORD": word}, ready={"log": "^up"})
    assert record.status == "pass", record.reason
    assert log_of(bench, record) == ["up [redacted]"]
    assert launching.attach(record.run, bench.events.append).status == "pass"
    assert launching.stop(record.run, bench.events.append).status == "pass"
