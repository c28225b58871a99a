"""The job that probes one step: build it, drive it, read what the rules need, and say how it ended.

Arguments of the probe (`args`): samples (times to take), device ("cpu"), frozen_advance (every warm-up gets the
number of the captured call, so that it runs just what the capture will run), trivial (the subject is built and its
threads run, but a trivial operation is captured in its stead).
"""

import contextlib
import traceback

from ..subjects.loader import as_step, lacks, load, options_for
from . import effective, tuning, without_gpu
from .calls import Calls
from .capture import Captures
from .compare import CHECK
from .exceptions import walk
from .protocol import Protocol, warm_ups
from .threads import Threads
from .watch import watch
from .witnesses import Witnesses


def run(ctx) -> dict:
    """Job: probe one step. Returns status and reason; all else is left in ctx.fields, also when this raises."""
    import torch

    arm, caveats = ctx.probe.arm, ctx.fields.setdefault("caveats", [])
    witnesses, threads = Witnesses(ctx.run, ctx.folders), Threads()
    device = "cpu" if ctx.args.get("device") == "cpu" else "cuda"
    try:
        with contextlib.ExitStack() as stack:
            if ctx.probe.watched:
                stack.enter_context(watch(witnesses))
            ctx.stage("build")
            tuning.prepare(arm, ctx.args)
            with without_gpu.on_cpu(copies=True) if device == "cpu" else contextlib.nullcontext():
                step, skipped = build_step(ctx)
            if skipped:
                return skipped
            if device == "cpu":
                step = without_gpu.given_on_cpu(step)
            threads.built()
            if step.close:
                stack.callback(step.close)
            wants = tuning.pin_all(step, arm, ctx.given.get("winners", {}))
            if wants:
                return wants
            calls = Calls(_driven(ctx, step), arm, ctx.seed, torch.device(device), caveats, _frozen(ctx))
            stack.callback(calls.close)
            protocol = Protocol(ctx, calls, Captures(ctx, caveats, witnesses, threads), witnesses)
            try:
                protocol.drive()
            finally:
                ctx.fields["checks"] = [check.model_dump() for check in protocol.checks]
                ctx.fields["tuning"] = tuning.winners()
                facts = ctx.fields.setdefault("effective", {})
                facts |= {**effective.read_back(ctx.given), "device": device, "threads": threads.names()}
                if calls.state.reshaped:
                    facts["state_reshaped"] = calls.state.reshaped
            protocol.diagnose()
    except Exception as error:
        if device == "cpu" and _asks_for_cuda(error):
            return {"status": "skipped", "reason": "the step's own code asks for a CUDA GPU, and this machine has none"}
        raise
    finally:
        ctx.fields["events"] = [event.model_dump() for event in witnesses.events]
        ctx.fields["counts"] = witnesses.counts
    return _end(protocol.bad)


def _asks_for_cuda(error: BaseException) -> bool:
    """Whether an error came of initialising CUDA, which a machine without a GPU refuses, whatever its text."""
    import torch

    initialising = torch.cuda._lazy_init.__code__
    frames = (frame for one in walk(error) for frame, _ in traceback.walk_tb(one.__traceback__))
    return any(frame.f_code is initialising for frame in frames)


def build_step(ctx) -> tuple:
    """(step, None), or (None, the fields of a skipped record)."""
    arm = ctx.probe.arm
    build = load(ctx.probe.subject.target)
    options, reason = options_for(build, ctx.probe.subject, arm)
    if reason:
        return None, {"status": "skipped", "reason": reason}
    step = as_step(build(**options))
    if reason := lacks(step, arm):
        return None, {"status": "skipped", "reason": reason}
    if arm.variant == "twin":
        if step.twin is None and ctx.args.get("device") == "cpu":
            return None, {"status": "skipped", "reason": "the step has no twin, whose torch ops a CPU could run"}
        if step.twin is None:
            from ..subjects.generic_twin import generic_twin

            step = generic_twin()
            ctx.fields.setdefault("caveats", []).append("the subject has no twin: a generic one stood in")
            ctx.fields.setdefault("effective", {})["twin"] = "generic"
        else:
            step = as_step(step.twin)
    return step, None


def _driven(ctx, step):
    """The step itself, or with `trivial` the trivial control in its stead: threads that `build` started run on."""
    if not ctx.args.get("trivial"):
        return step
    from ..subjects.controls import trivial

    ctx.fields["payload"] = {"trivial": True}
    return trivial()


def _frozen(ctx) -> int | None:
    """The captured call's number, for warm-ups that are to run just what it runs; None: each has its own."""
    if not ctx.args.get("frozen_advance"):
        return None
    ctx.fields["payload"] = {"frozen_advance_passes": False}
    return warm_ups(ctx.probe.arm)


def _end(bad: list) -> dict:
    if not bad:
        return {"status": "pass"}
    first = bad[0]
    if first.output.endswith("undeclared"):
        said = first.output
    elif first.error is not None and first.tolerance == 0.0:
        said = f"{first.output} is off by {first.error:.3g} of its largest value, and must be equal"
    elif first.error is not None:
        said = f"{first.output} is off by {first.error:.3g} > {first.tolerance:g}"
    elif first.output == CHECK:
        said = "the step's own check says no"
    else:
        said = f"{first.output} is not finite where it should be, or has another shape"
    return {"status": "wrong", "reason": f"{first.call}: {said}"}
