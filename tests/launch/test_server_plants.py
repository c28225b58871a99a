"""Servers that lie, planted: each says that it is well, and none is taken for ready."""

import http.server
import socket
import subprocess
import sys
import threading
import time

import pytest
from launch_bench import free_port, here_only, log_of, ssh_only, stage
from startlogs import ERROR, SGLANG

from capturebook import launch as launching
from capturebook.launch import metrics, readiness
from capturebook.launch.adapters import VLLM
from capturebook.launch.ready import NotYet, fetch

# Answers like an OpenAI server: /health and /v1/models at once; what a completion does is the plant.
SERVER = """
import http.server, json, os, sys, threading, time

MODEL = sys.argv[2]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"status": "ok", "data": [{"id": MODEL}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        COMPLETE

    def answer(self, what, status=200):
        data = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

def token(n=1):
    return {"model": MODEL, "choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": n}}

print("INFO:     Application startup complete.", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def plant(bench, complete: str, **fields):
    """Launch the server whose completions run `complete`."""
    bench.write("server.py", SERVER.replace("COMPLETE", complete))
    fields = {"port": "auto", "adapter": "vllm", "deadline": 5, **fields}
    # As a command: an adapter adds the option that names the run to a command's words.
    return bench.launch(
        command=[sys.executable, "{folder}/server.py", "{port}", "m-{nonce}"], files=["server.py"], **fields
    )


@ssh_only
def test_health_alone_is_not_ready(bench):
    record = plant(bench, "time.sleep(60)", deadline=2)
    assert (record.status, record.payload["class"], record.payload["failed_stage"]) == ("timeout", "C10", "ready")
    assert any('"GET /v1/models HTTP/1.1" 200' in line for line in log_of(bench, record)), "it did say that it is well"
    # Its log said "startup complete" all along.
    assert any(entry["phase"] == "ready" for entry in record.payload["timeline"])


@here_only
def test_a_server_that_wants_a_key_is_asked_with_its_own(bench):
    complete = "self.answer(token()) if self.headers['Authorization'] == 'Bearer key-one' else self.answer({}, 401)"
    bench.write("server.py", SERVER.replace("COMPLETE", complete))
    command = [sys.executable, "{folder}/server.py", "{port}", "m-{nonce}", "--api-key", "key-one"]
    record = bench.launch(command=command, files=["server.py"], port="auto", adapter="sglang", deadline=20)
    assert record.status == "pass", record.reason
    # Who attaches has it from the process.
    assert launching.attach(record.run, bench.events.append).status == "pass"
    launching.stop(record.run, bench.events.append)
    kept = [p for p in (bench.root / "outputs").rglob("*") if p.is_file() and p.name != "server.py"]
    assert not [p for p in kept if b"key-one" in p.read_bytes()] and "key-one" not in "".join(bench.events)


@here_only
def test_an_answer_without_a_token_is_not_ready(bench):
    record = plant(bench, "self.answer({'detail': 'loading'}, 503)", deadline=1.5)
    assert (record.status, record.payload["class"]) == ("timeout", "C10"), record.reason
    assert "HTTP status 503" in record.reason


@pytest.fixture
def answering():
    """Serves (status, headers, body) for a path; the base URL and the paths that were asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(self.path)
            status, headers, body = answers[self.path]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *args):
            pass

    answers, asked = {}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield answers, asked, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"usage": {"completion_tokens": 0}}', "an answer of no tokens"),
        ('{"usage": {"completion_tokens": "1"}}', "an answer of no tokens"),
        ('{"model": "m"}', "an answer without usage"),
        ("[]", "an answer without usage"),
        ("ok", "an answer without usage"),
    ],
)
def test_what_is_no_token(answering, body, says):
    answers, _, base = answering
    answers["/v1/completions"] = (200, {}, body)
    with pytest.raises(NotYet, match=says):
        VLLM.one_token(base, "m")


@pytest.mark.parametrize(
    ("body", "says"),
    [('{"data": []}', "names 0 models"), ("[]", "answers '\\[\\]'"), ('{"data": [1]}', "give `model`")],
)
def test_a_model_that_is_not_named_is_no_answer(answering, body, says):
    answers, _, base = answering
    answers["/v1/models"] = (200, {}, body)
    with pytest.raises(NotYet, match=says):
        VLLM.one_token(base, None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(answering, status):
    answers, asked, base = answering
    # To where the expected text is: the same server will do.
    answers["/work"] = (status, {"Location": f"{base}/other"}, "")
    answers["/other"] = (200, {}, "worked")
    for body in (None, "{}"):
        with pytest.raises(NotYet, match=f"HTTP status {status}, a redirect to"):
            fetch(f"{base}/work", body, 5.0)
    assert "/other" not in asked
    answers["/metrics"] = answers["/work"]
    with pytest.raises(metrics.NoMetrics, match="a redirect to"):
        metrics.scrape(VLLM, base)


@here_only
def test_one_that_generates_and_names_the_run_is_ready(bench):
    record = plant(bench, "self.answer(token())")
    assert record.status == "pass", record.reason
    assert stage(record, "ready")["evidence"]["answer_names_the_run"] is True
    launching.stop(record.run, bench.events.append)


@here_only
def test_one_that_says_ready_and_dies_is_not_ready(bench, monkeypatch):
    monkeypatch.setattr(readiness, "SETTLE", 1.0)
    # The first token is right; then its engine dies.
    record = plant(bench, "self.answer(token()); self.wfile.flush(); os._exit(9)")
    assert record.status == "fail" and record.payload["failed_stage"] == "ready"
    assert "it said it was ready, and ended: exit status 9" in record.reason


@here_only
def test_an_old_server_on_the_port_is_named_before_anything_starts(bench):
    port = free_port()
    path = bench.write("old.py", SERVER.replace("COMPLETE", "self.answer(token())"))
    old = subprocess.Popen([sys.executable, path, str(port), "old"], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < end:
            time.sleep(0.05)
        record = plant(bench, "self.answer(token())", port=port)
    finally:
        old.terminate()
        old.wait()
    assert (record.status, record.payload["class"], record.payload["failed_stage"]) == ("not_run", "C9", "port")
    assert f"held by process {old.pid}" in record.reason and "old.py" in record.reason


def test_a_failed_capture_is_recorded_with_its_whole_chain(bench):
    # As sglang fails: the scheduler's traceback in the parent's log, then the end of all of it.
    bench.write("server.py", f"def step(root):\n    raise root\n{ERROR}{SGLANG.replace('ROOT', 'ISOLATION')}")
    command = [sys.executable, "{folder}/server.py"]
    record = bench.launch(command=command, files=["server.py"], adapter="sglang", port="auto", deadline=20)
    assert record.status == "fail" and record.payload["failed_stage"] == "ready"
    assert [link.code for link in record.chain] == [901, 901, 905] and record.root.frames[-1].function == "step"
    assert record.payload["points_to"]["classes"] == ["K3", "B5"]
    # The server's own hint is about memory; ours is about the root.
    assert "905" in record.payload["todo"] and "enable-torch-compile" in record.payload["todo"]
    assert str(bench.root) not in record.to_line()


@here_only
def test_an_exception_that_a_script_lived_through_is_no_cause(bench):
    # Caught and printed; the script ends well, and leaves no proof of its work.
    text = "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    record = bench.script(text, name="t.py", interpreter=[sys.executable], result={"log": "^RESULT"})
    assert (record.status, record.chain) == ("not_run", []) and "points_to" not in record.payload
    failed = bench.script("1 / 0\n", name="t.py", interpreter=[sys.executable], result={"log": "^RESULT"})
    assert failed.status == "fail" and failed.root.type == "ZeroDivisionError"
    assert failed.payload["points_to"]["classes"] == [] and "capturebook probe" not in failed.payload["todo"]
