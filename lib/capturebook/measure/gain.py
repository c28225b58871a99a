"""What a fix gains: the fixed arm and the nearest passing one captured in one process, their replays taking turns.

Clock, temperature and neighbours then meet both alike, which two processes one after the other cannot promise. Both
arms are compared with the reference before anything is timed.
"""

import contextlib
import time
from dataclasses import replace

from ..records import Arm
from .timing import WARM_SECONDS, interleave

_LEAD_CYCLES = 200_000
"""About 0.1 ms of GPU work before each sample, so that launching the replay from the host is not part of it."""


def run(ctx) -> dict:
    """Job: `ctx.probe.arm` is the fixed arm, args["beside"] the other one's factors, args["samples"] the rounds.

    samples: {"fixed": us, "baseline": us}, in the order of the rounds. A step that drives itself is skipped.
    """
    import torch

    arms = {"fixed": ctx.probe.arm, "baseline": Arm(**ctx.args["beside"])}
    payload = {"baseline": ctx.args["beside"]}
    # Pinned last: pinning takes an autotuner's other configurations away for the rest of the process.
    order = sorted(arms, key=lambda name: arms[name].tuning == "pinned")
    ready = {}
    with contextlib.ExitStack() as stack:
        for name in order:
            torch._dynamo.reset()
            ready[name], gave_up = _prepare(ctx, arms[name], stack)
            if gave_up:
                reason = f"{name}, {arms[name].label()}: {gave_up.get('reason', '')}"
                return {**gave_up, "reason": reason, "payload": {**payload, **gave_up.get("payload", {})}}
        ctx.stage("time")
        end = time.monotonic() + 2 * WARM_SECONDS
        while time.monotonic() < end:
            for timed in ready.values():
                timed()
        samples = interleave({name: ready[name] for name in arms}, ctx.args["samples"], lambda timed: timed())
    return {"status": "pass", "samples": samples, "payload": payload}


def _prepare(ctx, arm: Arm, stack) -> tuple:
    """(function that runs the arm once and returns its time in us, None), or (None, the record's fields)."""
    import torch

    from ..probes import drive, tuning
    from ..probes.calls import Calls
    from ..probes.compiled import compiled
    from ..probes.protocol import REPLAYS, warm_ups

    ctx.stage("build")
    tuning.prepare(arm, ctx.args)
    step, skipped = drive.build_step(replace(ctx, probe=replace(ctx.probe, arm=arm)))
    if skipped:
        return None, skipped
    if step.drive:
        return None, {"status": "skipped", "reason": "the step drives itself, so its replays cannot take turns"}
    if step.close:
        stack.callback(step.close)
    if lacks := tuning.pin_all(step, arm, ctx.given.get("winners", {})):
        return None, lacks
    device = torch.device("cpu" if ctx.args.get("device") == "cpu" else "cuda")
    calls = Calls(step, arm, ctx.seed, device, ctx.fields.setdefault("caveats", []))
    stack.callback(calls.close)
    ctx.stage("warmup")
    fn = compiled(step, arm)
    for number in range(warm_ups(arm) or 1):
        calls.warm_up(fn, f"warm-up {number + 1}")
    if arm.capture == "none":
        calls.eager(fn, "call 1")
        go = lambda: calls.call(fn)  # noqa: E731
    else:
        ctx.stage("capture")
        calls.prepare_capture()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=calls.stream, capture_error_mode=arm.capture):
            calls.capture(fn)
        calls.took_capture()
        ctx.stage("replay")
        for number in range(REPLAYS):
            calls.replay(captured, f"replay {number + 1}")
        go = captured.replay
    ctx.fields["checks"] = ctx.fields.get("checks", []) + [check.model_dump() for check in calls.checks]
    if bad := [check for check in calls.checks if not check.ok]:
        return None, {"status": "wrong", "reason": f"{bad[0].call}: {bad[0].output} is off"}
    return (lambda: _timed(calls, go)), None


def _timed(calls, go) -> float:
    """Microseconds of one run from restored state: between two events on the arm's stream; by the clock on a CPU.

    `advance` is not called: it numbers the calls that are compared, and a caller's cache may end where those do.
    """
    import torch

    calls.state.restore()
    calls.synchronize()
    if not calls.cuda:
        began = time.perf_counter()
        go()
        return (time.perf_counter() - began) * 1e6
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with calls.on_stream():
        torch.cuda._sleep(_LEAD_CYCLES)
        start.record()
        go()
        end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3
