"""The decode step over concurrency and context: for one kind of layer, every rung of switches checked, then timed.

Three layers of the kind with weights of their own make the step that is captured, so that no weight is still in the
cache when its turn comes again; a time is a third of it. Places of one kind share a process and its weights: to start
one and draw them takes longer than to measure a place.
"""

from .decode_memory import misfit, needed
from .decode_point import DEFAULTS, LAYERS, Point
from .decode_profile import classes
from .gpu_processes import foreign_processes, refusal
from .rows import sample_name
from .several_places import in_turn, outcome


def run(ctx) -> dict:
    """Job: every variant of each place against float64, then timed in turn; GPU time by class from profiled replays,
    and the time of a call without a graph, where kernels are looked at.

    A place where one variant is wrong has no times, and says so; one that cannot fit, by arithmetic, or runs out of
    memory is skipped. `not_run` beside another process on the GPU.
    """
    import torch

    found = foreign_processes()
    if found:
        return refusal(found)
    asked = ctx.probe.subject.options
    step = {**DEFAULTS, **asked["step"]}
    payload = ctx.fields["payload"] = {"layer": asked["layer"], "step": step, "places": {}}
    checks, samples, weights = [], {}, None

    def measure(place: dict) -> dict:
        nonlocal weights
        ctx.stage("build")
        need = needed(asked["layer"], step, place["batch"], place["context"], LAYERS)
        if why := misfit(need, torch.cuda.mem_get_info()[0], weights is not None, ctx.args["memory_gib"]):
            return {"status": "skipped", "reason": why}
        point = Point({**asked, **place}, ctx.seed, weights=weights)
        weights = point.weights
        return _measured(ctx, point, place, checks, samples)

    in_turn(asked["places"], measure, payload["places"])
    return outcome(payload["places"], checks, samples)


def _measured(ctx, point: Point, place: dict, checks: list[dict], samples: dict) -> dict:
    """What a record holds of one place; its checks and samples are added to those of the record if all is right."""
    ctx.stage("verify")
    here = [check for name in place["variants"] for check in point.verify(name, keep=True)]
    if bad := [check for check in here if not check["ok"]]:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)"}
    ctx.stage("time")
    us = point.time(ctx.args["samples"])
    found = {**point.sizes(), "seconds": point.seconds}
    if point.asked["layer"] == "csa":
        found["ends_us"] = point.ends_us()
    by_class = classes(point, place["profile"])
    called = point.called_us() if place["profile"] else {}
    found["variants"] = {
        name: {**place["variants"][name], **point.spread(us[name]), **point.described(name), **by_class[name]}
        | called.get(name, {})
        for name in us
    }
    checks += [check | {"call": sample_name(place, check["call"])} for check in here]
    samples |= {sample_name(place, name): of for name, of in us.items()}
    return found
