"""How an H200 answers arms of the story's step, from what was measured there (torch 2.11, warm-up 2 calls unless cold).

Stands in for the GPU in tests of planning, scoring and conclusions: it answers any probe with a record.
"""

from capturebook.records import Arm

from .records import controls, fail, record


def answer(probe):
    """The record that a probe of the story's step leaves."""
    common = {"role": probe.role, "subject": probe.subject, "probe": probe.id, "watched": probe.watched}
    if probe.role == "control":
        name = probe.subject.target.rpartition(":")[2]
        made = next(r for r in controls() if r.subject.target.endswith(name))
        return made.model_copy(update={"probe": probe.id, "arm": probe.arm})
    if probe.kind == "gain":
        times = {"fixed": [20.0, 21.0, 22.0], "baseline": [30.0, 31.0, 33.0]}
        return record(
            probe.arm, kind="gain", samples=times, payload={"baseline": probe.args["beside"]}, stage="time", **common
        )
    made = outcome(probe.arm, common)
    return made if probe.watched else made.model_copy(update={"events": [], "counts": {}, "graph": {}})


def outcome(arm: Arm, common: dict):
    if arm.capture == "none":
        return record(arm, **common)
    if arm.compile == "none":
        tunes = arm.warmup in ("cold", "kernel_cold") and arm.tuning == "live" and arm.variant == "step"
        if tunes:
            return fail(arm, 900, frames="autotune", seen=["jit", "autotune"], **common)
        return record(arm, **{"graph": {"parallel": bool(arm.overlap)}, **common})
    if arm.compile in ("reduce-overhead", "max-autotune"):
        return fail(arm, None, "Cannot prepare for replay during capturing stage.", frames="trees", **common)
    if arm.warmup in ("cold", "kernel_cold"):
        return fail(arm, 900, frames="inductor_tuning", seen=["dynamo", "inductor_autotune"], **common)
    if arm.overlap and arm.compile != "eager":
        if arm.graph_break == "between" and arm.sync == "stream":
            return fail(arm, 905, frames="subject", **common)
        if arm.graph_break == "after_fork":
            return fail(arm, 900, frames="generated", **common)
    lost = arm.overlap and arm.compile != "eager"
    caveats = ["overlap lost: the captured graph is one chain, the side stream's work runs in line"] if lost else []
    return record(arm, **{"graph": {"parallel": bool(arm.overlap) and not lost}, "caveats": caveats, **common})
