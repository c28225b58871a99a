"""The decode step over concurrency and context: for one kind of layer, every rung of switches checked, then timed.

Three layers of the kind with weights of their own make the step that is captured, so that no weight is still in the
cache when its turn comes again; a time is a third of it.
"""

from typing import Any

from ..probes import Probe
from ..records import Subject
from .decode_point import DEFAULTS, Point
from .gpu_processes import foreign_processes, refusal
from .kv_capacity import LAYERS as MODEL


def plan_decode_sweep(params: Any, options: dict, names: list[str] | None = None) -> list[Probe]:
    """One probe for each kind of layer, batch, context and maximum context of the parameters; each alone on the GPU.

    options: of the step, of which those in DEFAULTS are taken; layers there say which kinds. names: of
    `decode_variants.RUNGS`, by default those that torch.compile has no part in.
    """
    from .decode_variants import FALLBACK, LADDER

    names = list(LADDER | FALLBACK) if names is None else names
    return [
        Probe(
            kind="sweep",
            subject=Subject(
                target=params.subject,
                options={
                    "variants": {name: {"kernel": name, "tuning": "pinned"} for name in names},
                    "layer": kind,
                    "batch": batch,
                    "context": context,
                    "max_context": most,
                    "step": {name: value for name, value in options.items() if name in DEFAULTS},
                },
            ),
            job="capturebook.measure.decode_sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib},
            seed=params.seed,
            exclusive=True,
            deadline=max(params.deadline, 300.0),
            label=f"decode sweep: {kind}, batch {batch}, context {context} of {most}",
        )
        for kind in options.get("layers", MODEL)
        for most in params.max_contexts
        for context in params.contexts
        for batch in params.batches
        if context <= most
    ]


def run(ctx) -> dict:
    """Job: every variant of one point against float64, then timed in turn; GPU time by class from a profiled replay.

    `wrong` if one variant is: then none has a time. `not_run` beside another process on the GPU, `skipped` if it does
    not fit.
    """
    import torch

    found = foreign_processes()
    if found:
        return refusal(found)
    asked = ctx.probe.subject.options
    ctx.stage("build")
    try:
        point = Point(asked, ctx.seed)
        ctx.stage("verify")
        checks = [check for name in asked["variants"] for check in point.verify(name)]
        payload = {**{name: asked[name] for name in ("layer", "batch", "context", "max_context")}, **point.sizes()}
        payload["step"] = point.step
        bad = [check for check in checks if not check["ok"]]
        if bad:
            text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
            return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
        ctx.stage("time")
        samples = point.time(ctx.args["samples"])
        payload["ends_us"] = point.ends_us()
        payload["variants"] = {
            name: {**asked["variants"][name], **point.spread(samples[name]), **point.classes(name)} for name in samples
        }
    except torch.OutOfMemoryError as error:
        return {"status": "skipped", "reason": f"does not fit: {str(error).partition('. ')[0]}", "payload": {}}
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}
