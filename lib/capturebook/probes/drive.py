"""The default driver: take one step through build, compile, warm-up, capture and replay as an arm says.

For each call and replay: restore the state, advance(i), snapshot, run, compare with the reference computed from that
snapshot. Capture success proves nothing: three replays with other inputs are compared.
"""

import contextlib
import threading
import time

from ..subjects.loader import as_step, load, options_for
from . import diagnose, effective, graph, tuning
from .calls import Calls
from .witnesses import Witnesses, watch

REPLAYS = 3
HOLD_SECONDS = 0.5
"""How long a capture stays open when the subject runs threads, so that theirs have the time to break it."""


def run(ctx) -> dict:
    """Job: probe one step. Returns status and reason; all else is left in ctx.fields, also when this raises."""
    import torch

    probe, arm = ctx.probe, ctx.probe.arm
    witnesses = Witnesses(ctx.run, ctx.folders)
    before = set(threading.enumerate())
    try:
        with contextlib.ExitStack() as stack:
            if probe.watched:
                stack.enter_context(watch(witnesses))
            ctx.stage("build")
            tuning.prepare(arm, ctx.args)
            step, skipped = _build(ctx)
            if skipped:
                return skipped
            if step.close:
                stack.callback(step.close)
            lacks = tuning.pin_all(step, arm, ctx.given.get("winners", {}))
            if lacks:
                return lacks
            device = "cpu" if ctx.args.get("device") == "cpu" else "cuda"
            calls = Calls(step, arm, ctx.seed, torch.device(device))
            calls.foreign_threads = lambda: [
                t.name for t in threading.enumerate() if t not in before and not t.name.startswith("capturebook")
            ]
            stack.callback(calls.close)
            try:
                _drive(ctx, calls, step)
            finally:
                ctx.fields["checks"] = [check.model_dump() for check in calls.checks]
                ctx.fields["caveats"] = calls.caveats
                threads = calls.foreign_threads()
                ctx.fields["tuning"] = tuning.winners()
                ctx.fields["effective"] = {**effective.read_back(ctx.given), "device": device, "threads": threads}
            bad = [check for check in calls.checks if not check.ok]
            if bad:
                _diagnose(calls, ctx.fields["effective"], "deterministic", lambda: diagnose.deterministic(calls))
                if arm.compile != "none":
                    _diagnose(calls, ctx.fields["effective"], "opcheck", lambda: diagnose.operators(calls))
    finally:
        ctx.fields["events"] = [event.model_dump() for event in witnesses.events]
        ctx.fields["counts"] = witnesses.counts
    if bad:
        shown = "not finite" if bad[0].error is None else f"{bad[0].error:.3g}"
        return {"status": "wrong", "reason": f"{bad[0].call}: {bad[0].output} is off by {shown} > {bad[0].tolerance:g}"}
    return {"status": "pass"}


def _build(ctx):
    """(step, None), or (None, the fields of a skipped record)."""
    arm = ctx.probe.arm
    build = load(ctx.probe.subject.target)
    options, reason = options_for(build, ctx.probe.subject, arm)
    if reason:
        return None, {"status": "skipped", "reason": reason}
    step = as_step(build(**options))
    if arm.variant == "twin":
        if step.twin is None:
            from ..subjects.generic_twin import generic_twin

            step = generic_twin()
            ctx.fields["caveats"] = ["the subject has no twin: a generic one stood in"]
        else:
            step = step.twin
    return step, None


def _diagnose(calls: Calls, fields: dict, name: str, measure) -> None:
    """Add one reading about a wrong result. The result stays wrong when the reading fails; the caveat says so."""
    try:
        fields[name] = measure()
    except Exception as error:
        calls.caveats.append(f"{name} was not read: {type(error).__name__}: {str(error).splitlines()[:1]}")


def _drive(ctx, calls: Calls, step) -> None:
    import torch

    arm = ctx.probe.arm
    if calls.device.type == "cuda":
        torch.cuda.init()
    fn = _compiled(step, arm)
    ctx.stage("compile" if arm.compile != "none" and arm.warmup not in ("cold", "kernel_cold") else "warmup")
    if arm.warmup == "kernel_cold":
        _warm_stack(arm, calls)
    for number in range(int(arm.warmup[4:]) if arm.warmup.startswith("warm") else 0):
        calls.warm_up(fn, f"warm-up {number + 1}")
        ctx.stage("warmup")
    if arm.capture == "none":
        ctx.stage("verify")
        for number in range(REPLAYS):
            calls.eager(fn, f"call {number + 1}")
        if ctx.args.get("samples"):
            ctx.stage("time")
            ctx.fields["samples"] = {"call": calls.time_eager(fn, ctx.args["samples"])}
        return
    captured = _capture(ctx, calls, fn)
    ctx.stage("replay")
    for number in range(REPLAYS):
        calls.replay(captured, f"replay {number + 1}")
    if any(not check.ok for check in calls.checks):
        fields = ctx.fields.setdefault("graph", {})
        _diagnose(calls, fields, "missing", lambda: diagnose.kernels_missing(calls, fn, captured))
    elif ctx.args.get("samples"):
        ctx.stage("time")
        ctx.fields["samples"] = {"replay": calls.time_replay(captured, ctx.args["samples"])}


def _capture(ctx, calls: Calls, fn):
    """Capture one call as the arm says; returns the graph, ready to replay."""
    import torch

    arm, watched = ctx.probe.arm, ctx.probe.watched
    ctx.stage("capture")
    calls.prepare_capture()
    captured = torch.cuda.CUDAGraph(keep_graph=watched)
    with torch.cuda.graph(captured, stream=calls.stream, capture_error_mode=arm.capture):
        calls.capture(fn)
        if calls.foreign_threads():
            time.sleep(HOLD_SECONDS)
    if watched:
        ctx.fields["graph"] = graph.describe(captured.raw_cuda_graph())
        if arm.overlap and not ctx.fields["graph"]["parallel"]:
            calls.caveats.append("overlap lost: the captured graph is one chain, the side stream's work runs in line")
        captured.instantiate()
    return captured


def _compiled(step, arm):
    """The step's function as the arm wants it: torch.compile goes where the step says, else on the whole."""
    import torch

    if arm.compile == "none":
        return step.fn
    backend = {"backend": arm.compile} if arm.compile in ("eager", "aot_eager") else {"mode": arm.compile}

    def compile_(fn):
        return torch.compile(fn, fullgraph=arm.fullgraph, dynamic=arm.dynamic, **backend)

    return step.compiled(compile_) if step.compiled else compile_(step.fn)


def _warm_stack(arm, calls: Calls) -> None:
    """Warm everything but the step: cuBLAS on the capture's stream and thread, and another compiled function."""
    import torch

    x = torch.randn(64, 64, device=calls.device)
    other = _compiled(_Other(lambda t: torch.nn.functional.silu(t @ t) + t), arm)
    with calls.on_stream(), torch.no_grad():
        torch.mm(x, x)
        torch.mm(x.bfloat16(), x.bfloat16())
        for _ in range(2):
            other(x)
    calls.synchronize()


class _Other:
    """The least that `_compiled` needs of a step."""

    compiled = None

    def __init__(self, fn):
        self.fn = fn
