"""The throughput sweep of a user's own step: the step, its twin and the step compiled, checked and timed side by side.

The floor is made of what the step's `cost` says, else of bytes alone.
"""

import contextlib
import inspect
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..probes import Probe
from ..probes.graph import describe as describe_graph
from ..records import SUBJECT_FACTORS, Subject
from . import own_inputs, timing
from .floors import floor_of
from .gpu_processes import foreign_processes, refusal
from .own_step import Side, Variant, build, root_of, verify
from .sweep import speed

WORK = "each byte of inputs, outputs and state moved once; a step that reads only a part of them moves less"
"""What the floor of a step stands for that has no `cost`."""

STATED = "the bytes and FLOPs that the step's own cost states"

MANY = "One call inside a captured graph of many, on distinct inputs; what the step holds itself may stay in the cache"
SINGLE = (
    "One call a replay, because the step has state or host work between calls: state restored, advance() called and "
    "the cache overwritten before each, none of it timed"
)


def describe(ctx) -> dict:
    """Job: which factors the subject's build takes, as {"takes": [...]}. Needs no GPU."""
    from ..subjects.loader import load

    ctx.stage("build")
    parameters = inspect.signature(load(ctx.probe.subject.target)).parameters.values()
    every = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}
    return {"status": "pass", "payload": {"takes": [name for name in SUBJECT_FACTORS if every or name in names]}}


def plan_describe(params: Any) -> Probe:
    """The probe that reads what the subject's build takes."""
    return Probe(
        kind="build",
        subject=Subject(target=params.subject),
        job="capturebook.measure.own_sweep:describe",
        env=params.env,
        preload=tuple(params.preload),
        deadline=params.deadline,
        label="which factors build takes",
    )


def plan_own_sweep(params: Any, options: dict, takes: list[str], compiled: str, rates: dict) -> list[Probe]:
    """One probe for each batch, context and maximum context that the step's build takes; each holds the GPU alone.

    options: keywords for build. takes: see `describe`. compiled: the torch.compile mode of two more variants, or "".
    rates: see `sweep.rates`.
    """
    variants = {"step": {"kernel": "step", "tuning": "live"}, "twin": {"kernel": "twin", "tuning": "none"}}
    if compiled:
        for name, side in list(variants.items()):
            variants[f"{name}, compile={compiled}"] = {**side, "compile": compiled}
    contexts = [{"context": context} for context in params.contexts] if "context" in takes else [{}]
    batches = [{"batch": batch} for batch in params.batches] if "batch" in takes else [{}]
    maxima = [{"max_context": most} for most in params.max_contexts] if "max_context" in takes else [{}]
    points = [
        {**batch, **context, **most}
        for most in maxima
        for context in contexts
        for batch in batches
        if context.get("context", 0) <= most.get("max_context", math.inf)
    ]
    return [
        Probe(
            kind="sweep",
            subject=Subject(
                target=params.subject,
                options={"variants": variants, "batch": 1, **point, "build": {**options, **point}},
            ),
            job="capturebook.measure.own_sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib, "rates": rates},
            seed=params.seed,
            env=params.env,
            preload=tuple(params.preload),
            exclusive=True,
            deadline=max(params.deadline, 120.0),
            label=f"sweep {', '.join(f'{name} {value}' for name, value in point.items()) or 'of one size'}",
        )
        for point in points
    ]


def run(ctx) -> dict:
    """Job: check every variant against the step's reference, then time all that can be captured, interleaved.

    `wrong` if one variant is: then none has a time. `skipped` if the step cannot be captured (with its root), drives
    itself, or does not fit into memory; `not_run` beside another process on the GPU. Another variant that cannot be
    compiled or captured is left out, and the payload's `left` says why.
    """
    ctx.stage("build")
    found = foreign_processes()
    if found:
        return refusal(found)
    with contextlib.ExitStack() as stack:
        step = build(ctx.probe.subject.target, ctx.probe.subject.options["build"])
        if step.close:
            stack.callback(step.close)
        if step.drive:
            return {"status": "skipped", "reason": "the step drives itself: only it knows what one call is"}
        return _Point(ctx, step).measure()


@dataclass
class _Point:
    """One batch and context of a built step."""

    ctx: Any
    step: Any

    def measure(self) -> dict:
        import torch

        ctx, asked = self.ctx, self.ctx.probe.subject.options
        side = Side(self.step)
        payload = {"batch": asked["batch"], "context": asked.get("context"), "left": {}}
        payload |= {"subject": ctx.probe.subject.target, "gpu": torch.cuda.get_device_name()}
        variants = self._variants(side, payload["left"])
        alone = any(variant.side.alone for variant in variants)
        inputs = own_inputs.draw(self.step, ctx.seed, alone, ctx.args["memory_gib"])
        if inputs.problem:
            return {"status": "skipped", "reason": inputs.problem, "payload": payload}
        payload |= {"sets": len(inputs.sets), "left_out": inputs.left_out}
        payload |= {"method": SINGLE if alone else MANY, "tokens_per_second_means": _tokens(asked["build"])}
        ctx.stage("verify")
        checks = verify(variants, self.step, inputs.sets, ctx, payload["left"])
        if not checks:
            reason = "nothing of the step can be compared (no check, no finite output or state), so it has no time"
            return {"status": "skipped", "reason": reason, "payload": payload}
        payload |= _floor(side, inputs.sets[0], ctx.args["rates"])
        bad = [check for check in checks if not check["ok"]]
        if bad:
            text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
            return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
        return self._time([v for v in variants if v.name not in payload["left"]], inputs.sets, checks, payload)

    def _variants(self, side: Side, left: dict) -> list[Variant]:
        """The asked variants that the step has."""
        twin = self.step.twin
        found = []
        for name, asked in self.ctx.probe.subject.options["variants"].items():
            if asked["kernel"] == "twin" and twin is None:
                left[name] = "the step has no twin"
                continue
            own, mode = side if asked["kernel"] == "step" else Side(twin), asked.get("compile", "")
            found.append(Variant(name, own, own.compiled(mode) if mode else own.step.fn, mode))
        return found

    def _time(self, variants: list[Variant], sets: list, checks: list, payload: dict) -> dict:
        ctx = self.ctx
        ctx.stage("capture")
        result = {"checks": checks, "payload": payload, "caveats": []}
        kernels = {}
        for variant in variants:
            kernels[variant.name], reason = _captured(variant, sets[0], ctx)
            if reason:
                if variant.name == "step":
                    return {**result, "status": "skipped", "reason": f"the step cannot be captured: {reason}"}
                payload["left"][variant.name] = f"cannot be captured: {reason}"
                result["caveats"].append(f"times were taken after a capture of {variant.name} had failed")
        variants = [v for v in variants if v.name not in payload["left"]]
        ctx.stage("time")
        calls = {v.name: [partial(v.side.call, v.fn, one) for one in sets] for v in variants}
        if payload["method"] == SINGLE:
            samples = timing.time_single(calls, {v.name: v.side.begin for v in variants}, ctx.args["samples"])
        else:
            samples = timing.time_variants(calls, ctx.args["samples"])
        found = foreign_processes()
        if found:
            return {**result, **refusal(found)}
        asked = ctx.probe.subject.options["variants"]
        payload["variants"] = {
            v.name: {
                **asked[v.name],
                "config": _text(v.config(), kernels[v.name]),
                "kernels": kernels[v.name],
                **speed(samples[v.name], payload),
            }
            for v in variants
        }
        return {**result, "status": "pass", "samples": samples}


def _floor(side: Side, inputs: tuple, rates: dict) -> dict:
    """The payload's bytes, flops (None: not known), work (what they stand for) and floor of one call."""
    cost = own_inputs.cost(side.step, inputs)
    if cost is None:
        bytes_moved = own_inputs.traffic(side, inputs)
        return {"bytes": bytes_moved, "flops": None, "work": WORK, **floor_of(bytes_moved, 0, rates)}
    bytes_moved, flops = cost
    return {"bytes": bytes_moved, "flops": flops, "work": STATED, **floor_of(bytes_moved, flops, rates)}


def _captured(variant: Variant, inputs: tuple, ctx) -> tuple[int, str]:
    """How many kernels a graph of one call holds, and the root of what its capture raises, or ""."""
    import torch

    variant.side.begin()
    try:
        graph = timing.capture([partial(variant.side.call, variant.fn, inputs)], keep=True)
    except Exception as error:
        root = root_of(error, ctx)
        torch.cuda.synchronize()
        return 0, root
    return sum(describe_graph(graph.raw_cuda_graph())["kernels"].values()), ""


def _text(config: str, kernels: int) -> str:
    """What the sweep's table says of a variant."""
    return "; ".join([*([config] if config else []), f"{kernels} kernel{'s' * (kernels != 1)} a call"])


def _tokens(build: dict) -> str:
    if "batch" in build:
        return "batch / time of one call: what this step alone would allow, nothing else running"
    return "calls a second: the step's build takes no batch"
