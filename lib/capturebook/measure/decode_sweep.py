"""The decode step over concurrency and context: for one kind of layer, every rung of switches checked, then timed.

Three layers of the kind with weights of their own make the step that is captured, so that no weight is still in the
cache when its turn comes again; a time is a third of it.
"""

from .decode_point import Point
from .gpu_processes import foreign_processes, refusal


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
        checks = [check for name in asked["variants"] for check in point.verify(name, keep=True)]
        payload = {**{name: asked[name] for name in ("layer", "batch", "context", "max_context")}, **point.sizes()}
        payload |= {"step": point.step, "seconds": point.seconds}
        ctx.fields["payload"] = payload
        bad = [check for check in checks if not check["ok"]]
        if bad:
            text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
            return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks}
        ctx.stage("time")
        samples = point.time(ctx.args["samples"])
        payload["ends_us"] = point.ends_us()
        classes = point.classes(asked.get("profile", True))
        payload["variants"] = {
            name: {**asked["variants"][name], **point.spread(samples[name]), **point.described(name), **classes[name]}
            for name in samples
        }
    except torch.OutOfMemoryError as error:
        return {"status": "skipped", "reason": f"does not fit: {str(error).partition('. ')[0]}", "payload": {}}
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    return {"status": "pass", "checks": checks, "samples": samples}
