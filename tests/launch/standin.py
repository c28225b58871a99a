"""A stand-in for a server, with a launch file, and a comparison of three arms of it."""

import sys

import yaml
from startlogs import ERROR, SGLANG

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
    "load": {"concurrency": [1, 2], "requests": 2, "output_tokens": 6},
}


def written(bench, **changes):
    """The comparison's file, beside the launch file and the server."""
    bench.write("server.py", SERVER)
    bench.write("server.yaml", yaml.safe_dump(LAUNCH))
    return bench.write("ab.yaml", yaml.safe_dump({**COMPARISON, **changes}))
