"""Secrets that are short, stand in commands, or are words that the launcher uses itself."""

import json
import subprocess
from urllib.parse import quote_plus

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


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "m", "api_key": "hid-1"}',
        "{'auth': {'accessToken': 'hid-1'}}",
        'sh -c "curl -d {\\"secret\\": \\"hid-1\\", \\"n\\": \\"x\\"}"',
        '{"Authorization": "Bearer hid-1", "max_tokens": 16}',
        "https://example.org/v1?model=m&api_key=hid-1#top",
        "https://hid-1@example.org/repository",
        "postgres://user:hid-1@example.org/db",
        "vllm serve m --api-key hid-1 --max-tokens 16",
        'vllm serve m --hf-token="hid-1"',
        "curl -H 'X-Api-Key: hid-1' http://127.0.0.1:8000",
        "MODE=fast DB_PASSWORD=hid-1 serve",
    ],
)
def test_what_a_text_gives_under_a_telling_name_is_hidden(text):
    for add in (Redactor.add_text, lambda redactor, text: redactor.add({"EXTRA_ARGS": text})):
        redactor = Redactor()
        add(redactor, text)
        assert redactor.text(text) == text.replace("hid-1", "[redacted]")
        assert redactor.text("16 m user fast") == "16 m user fast"


@pytest.mark.parametrize(
    "text", ["/usr/lib/monkey:/usr/bin:/bin", "--max-tokens 16", "a=b", "http://[::1]:8000/x", "c:\\x"]
)
def test_what_is_no_credential_is_shown(text):
    redactor = Redactor()
    redactor.add({"PATH": text})
    redactor.add_text(text)
    assert redactor.values == []


def test_numbers_of_a_password_are_hidden_and_other_numbers_not():
    redactor = Redactor(nonce="0123abcd")
    redactor.add({"PASSWORD": "1234", "MAX_TOKENS": "512", "TOKENIZERS_PARALLELISM": "false", "USE_KEY": "true"})
    redactor.add({"RUN_KEY": "0123abcd", "SSH_KEY": "1"})
    redactor.add_text('{"password": 99887, "max_tokens": 77665}')
    assert redactor.text("1234 12345 512 false true 1 99887 77665 0123abcd") == (
        "[redacted] 12345 512 false true 1 [redacted] 77665 0123abcd"
    )


def test_a_secret_is_hidden_as_json_and_urls_spell_it():
    secret = 'a "b"/ç%&='
    redactor = Redactor()
    redactor.add({"MY_TOKEN": secret})
    shown = redactor.text(
        f"{json.dumps({'t': secret})} {json.dumps(secret, ensure_ascii=False)} ?q={quote_plus(secret)}"
    )
    assert shown == '{"t": "[redacted]"} "[redacted]" ?q=[redacted]'


@here_only
def test_secrets_in_what_a_server_is_asked_are_nowhere(bench):
    # It answers only who asks with the secrets themselves.
    record = serve(
        bench,
        env={"LATER": '{"hf_token": "third-one"}', "ASKED": '?key=first-one{"api_key": "second-one"}'},
        ready={
            "url": "http://127.0.0.1:{port}/work?key=first-one",
            "body": '{"api_key": "second-one"}',
            "expect": "worked for {nonce}",
        },
    )
    assert record.status == "pass", record.reason
    again = launching.attach(record.run, bench.events.append)
    assert again.status == "pass" and "its question holds a secret, which is not kept" in again.caveats[0]
    entry = launching.Entry.open(record.run)
    entry.update(state="started")
    with pytest.raises(launching.LaunchError, match="holds a secret, which is not kept: stop it"):
        launching.attach(record.run, bench.events.append)
    launching.stop(record.run, bench.events.append)
    shown = _shown(bench, record)
    assert not [name for name in ("first", "second", "third") if f"{name}-one" in shown]


@here_only
def test_a_run_may_have_its_nonce_as_its_key(bench):
    record = bench.launch(
        command=["echo", "RESULT", "--api-key", "{nonce}"], result={"log": "RESULT --api-key {nonce}"}
    )
    assert record.status == "pass", record.reason


@here_only
def test_what_stages_go_by_is_kept_whole(bench, monkeypatch):
    monkeypatch.setenv("PIN", "1")
    record = serve(bench, secret=["PIN"], failed=["ERROR 1"], phases={"up": "^listening"})
    assert record.status == "pass", record.reason
    assert launching.stop(record.run, bench.events.append).status == "pass"
    record = bench.script(
        "echo 'said [redact]'; echo rated capturebook >res; echo got $DB_PASSWORD\n",
        env={"DB_PASSWORD": "capturebook"},
        failed=["said capturebook"],
        result={"file": "res", "contains": "^rated capturebook$", "log": "^got capturebook$"},
    )
    assert record.status == "pass", record.reason
    record = bench.script(
        "echo said $DB_PASSWORD\n", env={"DB_PASSWORD": "capturebook"}, failed=["said capturebook"], result={"log": "x"}
    )
    assert record.status == "fail" and "its log says: said [redacted]" in record.reason


@here_only
def test_secrets_that_are_words_of_ours_change_no_stage(bench):
    words = ("capturebook", "launch", "command", "resolved", "DB_PASSWORD")
    bench.write("up.sh", "echo up $DB_PASSWORD $A_KEY $B_KEY $C_KEY $D_KEY; while :; do sleep 0.1; done\n")
    env = dict(zip(("DB_PASSWORD", "A_KEY", "B_KEY", "C_KEY", "D_KEY"), words, strict=True))
    record = bench.launch(script="up.sh", env=env, ready={"log": "^up"})
    assert record.status == "pass", record.reason
    assert log_of(bench, record) == ["up" + " [redacted]" * 5]
    assert launching.attach(record.run, bench.events.append).status == "pass"
    assert launching.stop(record.run, bench.events.append).status == "pass"
