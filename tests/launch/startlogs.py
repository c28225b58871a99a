"""Logs of servers that fail at start-up: tracebacks that Python itself prints, wrapped as sglang and vLLM do."""

import subprocess
import sys

# What torch prints after the text, and what the story's server does with it.
ERROR = """
def cuda(code, text):
    return RuntimeError(f"CUDA error: {text}\\nSearch for `{code}' in the CUDA documentation for more information.\\n"
                        "CUDA kernel errors might be asynchronously reported at some other API call.\\n")

ISOLATION = cuda("cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream")
UNSUPPORTED = cuda("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing")
INVALIDATED = cuda("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture")

def raise_it(error):
    raise error

def capture(root):
    try:
        step(root)
    finally:
        raise_it(INVALIDATED)

def server(root):
    try:
        capture(root)
    except RuntimeError as exc:
        raise Exception(f"Capture cuda graph failed: {exc}\\nPossible solutions:\\n1. set --mem-fraction-static lower")
"""
SGLANG = """
import traceback
print("[2026-01-01 00:00:30 TP0] Load weight end. elapsed=30.0 s")
try:
    server(ROOT)
except Exception:
    print(f"[2026-01-01 00:00:33 TP0] Scheduler hit an exception: {traceback.format_exc()}")
print("[2026-01-01 00:00:33] Received sigquit from a child process. It usually means the child failed.")
"""
VLLM = """
import traceback
try:
    server(ROOT)
except Exception:
    text = traceback.format_exc()
for n, line in enumerate(("EngineCore failed to start.\\n" + text).splitlines()):
    print(f"(EngineCore_DP0 pid=17) ERROR 01-01 00:00:33 [core.py:868] {line}")
    # Another process writes between these lines.
    print(f"(Worker_TP1 pid=18) INFO 01-01 00:00:33 [shm.py:1] line {n}")
try:
    try:
        raise_it(ValueError("worker"))
    except ValueError as exc:
        raise RuntimeError("Engine core initialization failed. See root cause above.") from exc
except RuntimeError:
    for line in traceback.format_exc().splitlines():
        print(f"(APIServer pid=16) {line}")
"""


def printed(tmp_path, how: str, step: str, root: str, folder: str = "srv") -> list[str]:
    """The log of a process that fails: `step` is the body of step(root), in a file of `folder`."""
    place = tmp_path / "site-packages" / folder
    place.mkdir(parents=True)
    (place / "part.py").write_text(f"def step(root):\n    {step}\n\ndef call(f, *a):\n    return f(*a)\n")
    module = ".".join((*folder.split("/"), "part"))
    code = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site-packages')!r})\nfrom {module} import step\n"
    (tmp_path / "main.py").write_text(code + ERROR + how.replace("ROOT", root))
    done = subprocess.run([sys.executable, tmp_path / "main.py"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
