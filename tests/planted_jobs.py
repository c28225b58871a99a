"""Jobs that die, hang or lie, for the tests of the runner. Each is run in a probe's child."""

import json
import os
import signal
import subprocess
import sys
import time


def leave(ctx):
    ctx.stage("warmup")
    os._exit(7)


def leave_a_copy(ctx):
    """The probe's own process dies, and a copy of it goes on and comes to its end."""
    ctx.stage("warmup")
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
        os._exit(7)
    ctx.stage("replay")
    return {"status": "pass"}


def forge(ctx):
    """A copy of the probe's process writes the result by itself; the probe leaves as if nothing were wrong."""
    ctx.stage("warmup")
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
        os._exit(0)
    said = {"nonce": ctx.nonce, "probe": ctx.probe.id, "pid": os.getpid(), "fields": {"status": "pass"}}
    (ctx.scratch / "result.json").write_text(json.dumps(said))
    os._exit(0)


def killed_after_its_result(ctx):
    """The result is whole, and then the process does not end as one that is done."""
    said = {"nonce": ctx.nonce, "probe": ctx.probe.id, "pid": os.getpid(), "fields": {"status": "pass"}}
    (ctx.scratch / "result.json").write_text(json.dumps(said))
    os.kill(os.getpid(), signal.SIGKILL)


def kill_self(ctx):
    ctx.stage("capture")
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(ctx):
    ctx.stage("replay")
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(ctx):
    ctx.stage("capture")
    while True:
        time.sleep(0.1)


def hang_deaf(ctx):
    """Ignores every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang(ctx)


def names_folders(ctx):
    """Says where it runs and where the user is at home, as an exception's text or a compiler's might."""
    said = [os.path.expanduser("~/kernels/mine.py"), f"{ctx.run}/logs"]
    return {"status": "pass", "caveats": said, "payload": {"deep": [{"said": f"in {said[0]}", "n": 1}]}}


def exit_zero(ctx):
    ctx.stage("warmup")
    sys.exit(0)


def grandchildren(ctx):
    """Leaves two processes behind: one in the same session, one in a session of its own."""
    code = "import time; time.sleep(600)"
    for own in (False, True):
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=own)
        ctx.fields.setdefault("payload", {}).setdefault("pids", []).append(child.pid)
    return {"status": "pass"}


def hang_with_grandchild(ctx):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(ctx.args["pid_file"], "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    hang(ctx)


def garbage(ctx):
    """Prints what could be taken for a result, and bytes that are no text."""
    print(json.dumps({"nonce": ctx.nonce, "status": "pass"}))
    os.write(1, b"\xff\xfe\x00 garbage\n" * 100)
    return {"status": "wrong", "reason": "the job says so"}


def stale_result(ctx):
    """Writes a result of another run and leaves."""
    (ctx.scratch / "result.json").write_text(json.dumps({"nonce": "old", "probe": "x", "fields": {"status": "pass"}}))
    os._exit(0)


def torn_result(ctx):
    (ctx.scratch / "result.json").write_text('{"nonce": "' + ctx.nonce)
    os._exit(0)


def unknown_field(ctx):
    return {"status": "pass", "speed": "very fast"}


def nan_payload(ctx):
    return {"status": "pass", "payload": {"x": float("nan")}}


def speed_without_correctness(ctx):
    return {"status": "wrong", "reason": "planted", "samples": {"replay": [1.0]}}


def chained(ctx):
    """901 on top of 905, as torch.cuda.graph raises them."""
    try:
        raise RuntimeError("CUDA error: dependency created on uncaptured work in another stream")
    except RuntimeError:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904


def unread(ctx):
    ctx.stage("capture")
    raise RuntimeError("two\nlines")


def inductor_config(ctx):
    import torch._inductor.config as config

    payload = {"cudagraphs": config.triton.cudagraphs, "threads": config.compile_threads, "pid": os.getpid()}
    return {"status": "pass", "payload": payload}


def triton_is_hashed(ctx):
    from triton.runtime.cache import triton_key

    return {"status": "pass", "payload": {"already": triton_key.cache_info().currsize}}


def fine(ctx):
    return {"status": "pass", "payload": {"pid": os.getpid(), "parent": os.getppid()}}
