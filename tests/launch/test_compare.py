"""A/B of launches: arms that change a launch file, rivals' predictions against what the launches showed."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from startlogs import ERROR, SGLANG

from capturebook.attribution.scores import CONTRADICTED, HELD, NOT_TESTED
from capturebook.launch import LaunchFileError
from capturebook.launch.servers import compare
from capturebook.launch.servers.comparison import Change, is_comparison, load_comparison
from capturebook.records import read

REPO = Path(__file__).resolve().parents[2]

here_only = pytest.mark.parametrize("bench", ["here"], indirect=True)
# A server that streams tokens, DELAY seconds apart; with BROKEN it dies as sglang does when a capture fails.
SERVER = f"""
import http.server, json, os, sys, time
if "--compile" in sys.argv:
    def step(root):
        raise root
    {"".join(line + chr(10) + "    " for line in (ERROR + SGLANG.replace("ROOT", "ISOLATION")).splitlines())}
    sys.exit(1)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send(json.dumps({{"data": [{{"id": "m"}}]}}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        n, text = body["max_tokens"], ""
        usage = {{"completion_tokens": n, "prompt_tokens": 4}}
        if not body.get("stream"):
            return self.send(json.dumps({{"model": "m", "choices": [{{"text": "x" * n}}], "usage": usage}}))
        self.send_response(200)
        self.end_headers()
        for i in range(n):
            time.sleep(float(os.environ.get("DELAY", "0")))
            last = i == n - 1
            event = {{"choices": [{{"text": "x", "finish_reason": "length" if last else None}}]}}
            self.wfile.write(f"data: {{json.dumps(event | ({{'usage': usage}} if last else {{}}))}}\\n\\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\\n\\n")

    def send(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
LAUNCH = {
    "script": "server.py",
    "interpreter": [sys.executable],
    "args": ["{port}", "--compile"],
    "env": {"DELAY": "0.03"},
    "adapter": "sglang",
    "port": "auto",
    "deadline": 30,
}
COMPARISON = {
    "name": "ab",
    "title": "Is the flag or the kernel to blame?",
    "launch": "server.yaml",
    "arms": [
        {"id": "stock", "factors": {"drop": ["--compile"]}, "why": "before"},
        {"id": "mma", "factors": {"drop": ["--compile"], "env": {"DELAY": "0"}}, "why": "faster"},
        {"id": "compiled", "factors": {}, "why": "what died"},
    ],
    "rivals": [
        {
            "id": "stack",
            "statement": "The flag is.",
            "predicts": {
                "stock": {"status": "pass"},
                "mma": {"status": "pass", "faster": 2},
                "compiled": {"status": "fail", "code": 905},
            },
        },
        {
            "id": "kernel",
            "statement": "The kernel is.",
            "predicts": {"mma": {"status": "fail"}, "compiled": {"status": "fail", "code": 900}},
        },
        {"id": "slow", "statement": "It is no faster.", "predicts": {"mma": {"status": "pass", "slower": 1.1}}},
    ],
    "load": {"concurrency": [1, 2], "requests": 4, "output_tokens": 8},
}


def written(bench, **changes):
    """The comparison's file, beside the launch file and the server."""
    bench.write("server.py", SERVER)
    bench.write("server.yaml", yaml.safe_dump(LAUNCH))
    return bench.write("ab.yaml", yaml.safe_dump({**COMPARISON, **changes}))


def test_arms_are_launched_asked_stopped_and_scored(bench):
    compared = compare.compare(load_comparison(written(bench)), bench.host, bench.events.append)
    marks = {score.id: {row.arm: row.mark for row in score.rows} for score in compared.scores()}
    assert marks == {
        "stack": {"stock": HELD, "mma": HELD, "compiled": HELD},
        "kernel": {"mma": CONTRADICTED, "compiled": CONTRADICTED},
        "slow": {"mma": CONTRADICTED},
    }
    assert compared.found("compiled") == "fail with 905" and "times as fast" in compared.found("mma")
    assert not bench.running(), "every server was stopped"
    records, torn = read(compared.path / "records.jsonl")
    assert not torn and [r.payload["arm"] for r in records] == ["stock", "stock", "mma", "mma", "compiled"]
    kept = json.loads((compared.path / "comparison.json").read_text())
    assert kept["rivals"][0]["held"] == 3 and kept["arms"]["mma"]["ratios"][0] > 2


@here_only
def test_an_arm_that_did_not_run_tests_nothing(bench):
    arms = [*COMPARISON["arms"][:2], {"id": "compiled", "factors": {"env": {"PATH": "/nowhere"}}, "why": "no program"}]
    path = written(bench, arms=arms, load=None)
    bench.write("server.yaml", yaml.safe_dump({**LAUNCH, "interpreter": ["python3"]}))
    compared = compare.compare(load_comparison(path), None, bench.events.append)
    marks = {score.id: {row.arm: row.mark for row in score.rows} for score in compared.scores()}
    # Nor does a speed that was never measured.
    assert marks["stack"] == {"stock": HELD, "mma": NOT_TESTED, "compiled": NOT_TESTED}
    assert compared.found("compiled") == "not run (C5)"


@here_only
def test_the_command_line_runs_it_and_says_what_held(bench):
    done = bench.cli("launch", str(written(bench)), "--json")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert json.loads(out)["arms"]["compiled"]["found"] == "fail with 905"
    assert "stack: 3 held, 0 contradicted, 0 not tested" in err and "one launch an arm" in err


@here_only
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": COMPARISON["arms"][:1]}, "arms: given"),
        ({"rivals": [{"id": "a", "statement": "s", "predicts": {"x": {"status": "pass"}}}]}, "rivals.a: no arm 'x'"),
        ({"arms": [{"id": "a", "factors": {"flag": 1}, "why": "w"}] * 2}, "arms: an id is given twice"),
        ({"arms": [COMPARISON["arms"][0], {"id": "b", "factors": {"flag": 1}, "why": "w"}]}, "arms.b: flag=1; extra"),
        ({"rounds": 0}, "rounds: given 0"),
        ({"load": {"concurrency": [0]}}, "load.concurrency.0: given 0"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(bench, changes, says):
    with pytest.raises(LaunchFileError, match=f"^comparison: {says}"):
        load_comparison(written(bench, **changes))


@here_only
def test_a_word_to_drop_must_be_there(bench):
    arms = [*COMPARISON["arms"][:2], {"id": "compiled", "factors": {"drop": ["--eager"]}, "why": "typo"}]
    comparison = load_comparison(written(bench, arms=arms))
    with pytest.raises(LaunchFileError, match="arms.compiled: drop: '--eager' is no word of the launch's args"):
        compare.compare(comparison)
    assert bench.ids() == []


def test_the_shipped_story_changes_what_it_says():
    path = REPO / "params/servers/flashmla.yaml"
    assert is_comparison(path) and not is_comparison(REPO / "params/servers/sglang_v4_flash.yaml")
    specs = load_comparison(path).specs()
    flag = "--enable-torch-compile"
    assert {arm: (spec.env, flag in spec.command) for arm, spec in specs.items()} == {
        "stock": ({"SGLANG_SM120_MMA_FLASHMLA": "0"}, False),
        "mma": ({}, False),
        "mma_compiled": ({}, True),
        "stock_compiled": ({"SGLANG_SM120_MMA_FLASHMLA": "0"}, True),
    }
    assert Change().of(specs["mma"], "same").command == specs["mma"].command
