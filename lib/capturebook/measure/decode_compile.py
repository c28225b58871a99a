"""torch.compile on the decode step: breaks, recompiles, what compiling costs, what it gains, and what it composes with;
the whole step compiled, or each function of its glue by itself.

Twice for each variant: cold, beside other compilations, then alone on the GPU with what that left in Inductor's cache,
where it is timed in turns with the same step captured as it is, and with the rungs that fuse by hand.
"""

import os
import time
from typing import Any

from ..probes import Probe
from ..records import Subject
from .decode_point import DEFAULTS, Point
from .gpu_processes import foreign_processes, refusal

PLAIN = "own heads only, eager glue"
UNCOMPILED = ("and own heads only", "and fused routing", "and overlap")
"""What compiled steps are timed beside, behind PLAIN: the first differs from COMPILED[1] in the compilation alone."""

COMPILED = (
    "own heads only, whole step compiled",
    "own heads only, fused, whole step compiled",
    "own heads only, compiled glue",
    "own heads only, whole step compiled, overlap",
)
SECOND = COMPILED[1]
"""The variant that is compiled for a second batch too: each batch is a graph of its own, compiled anew."""

COLD_S, TIMED_S = 90.0, 75.0
"""Most seconds of a probe. Beside fifteen others the slowest took 58 s cold, with one compile worker, on an H200."""

GROWTH = 130
"""Calls while requests grow: windows of 4 and of 128 tokens end within them."""


def plan_compile(params: Any, options: dict, timed: bool) -> list[Probe]:
    """A probe for each compiled variant of one layer at the parameters' largest batch, but 64 at most.

    timed: alone on the GPU, with times, those without side streams; else cold, beside others, and of the fused step at
    a smaller batch too. The layer is HCA, which has compressor and side streams and takes Inductor half of what CSA
    does, or what is asked for.
    """
    return [_probe(params, options, _layer(options), name, timed) for name in (COMPILED[:3] if timed else COMPILED)]


def plan_indexed(params: Any, options: dict, timed: bool) -> list[Probe]:
    """The same of a layer with an indexer and the fused variant alone; none where that layer is the first's, or is not
    asked for."""
    wanted = "csa" in options.get("layers", ("csa",)) and _layer(options) != "csa"
    return [_probe(params, options, "csa", SECOND, timed)] if wanted else []


def _layer(options: dict) -> str:
    kinds = list(options.get("layers", ("hca",)))
    return "hca" if "hca" in kinds else kinds[0]


def _probe(params: Any, options: dict, layer: str, name: str, timed: bool) -> Probe:
    batch = max([b for b in params.batches if b <= 64] or [min(params.batches)])
    second = max([b for b in params.batches if b < batch] or [max(1, batch // 2)])
    asked = {
        "part": "compile",
        "layer": layer,
        "batch": batch,
        "context": max(512, min(*params.contexts, *params.max_contexts)),
        "max_context": max(512, min(params.max_contexts)),
        "step": {name: value for name, value in options.items() if name in DEFAULTS},
        "compiled": name,
        "timed": timed,
        "second": second if name == SECOND and layer == _layer(options) else None,
    }
    return Probe(
        kind="sweep",
        subject=Subject(target=params.subject, options=asked),
        job="capturebook.measure.decode_compile:run",
        args={"samples": params.samples},
        seed=params.seed,
        exclusive=timed,
        deadline=min(params.deadline, TIMED_S if timed else COLD_S),
        label=f"{name}, {layer}: {'timed' if timed else 'compiled cold'}",
    )


def run(ctx) -> dict:
    """Job: one compiled variant of one layer. What it could not do is the record's error, as of any probe."""
    asked = ctx.probe.subject.options
    timed = asked["timed"]
    if timed and (found := foreign_processes()):
        return refusal(found)
    name = asked["compiled"]
    ctx.stage("build")
    workers = _workers(1 if timed else len(COMPILED) + 1)
    point = Point(asked | {"variants": [PLAIN, *UNCOMPILED, name] if timed else [name]}, ctx.seed, layers=1)
    payload = ctx.fields.setdefault("payload", {})
    payload |= {key: asked[key] for key in ("part", "compiled", "layer", "batch", "context", "max_context")}
    payload |= {"step": point.step, "workers": workers}
    ctx.stage("compile")
    payload |= _compiled(point, name)
    checks = []
    if timed:
        _end_workers()
    else:
        ctx.stage("warmup")
        payload["grown"] = _grown(point, name, checks)
    ctx.stage("capture")
    for variant in point.functions:
        checks += point.verify(variant, keep=variant == name)
    payload["graph"] = _graph(point.graphs[name])
    bad = [check for check in checks if not check["ok"]]
    if bad:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
    if not timed:
        if asked["second"]:
            ctx.stage("compile")
            payload["second"] = _second(point, name, asked["second"])
        return {"status": "pass", "checks": checks, "payload": payload}
    ctx.stage("time")
    samples = point.time(ctx.args["samples"])
    if found := foreign_processes():
        return {**refusal(found), "checks": checks}
    payload["us"] = {variant: point.spread(of) for variant, of in samples.items()}
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


def _workers(beside: int) -> int:
    """Starts Inductor's compile workers, a share of the cores for each of the processes that compile at a time.

    A probe has one by default (see `probes.servers`): with it the step's kernels were compiled one after the other,
    most of 34 to 43 s on an H200's host.
    """
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    config.compile_threads = max(1, len(os.sched_getaffinity(0)) // beside)
    AsyncCompile.warm_pool()
    AsyncCompile.wakeup()
    return config.compile_threads


def _end_workers() -> None:
    """Ends them and what they were forked from, which asks CUDA for the device's properties: a timing is alone."""
    from torch._inductor import config
    from torch._inductor.async_compile import shutdown_compile_workers

    shutdown_compile_workers()
    config.compile_threads = 1


def _compiled(point: Point, name: str) -> dict:
    """The first call of a compiled step: seconds, Dynamo's graphs, its breaks and their reasons."""
    import torch
    from torch._dynamo.utils import counters

    counters.clear()
    point.pin(name)
    point.positions.copy_(point.start)
    began = time.monotonic()
    with torch.no_grad():
        point.functions[name](*point.inputs)
    torch.cuda.synchronize()
    return {
        "first_call_s": time.monotonic() - began,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "break_reasons": [reason.partition("\n")[0][:200] for reason in counters["graph_break"]],
    }


def _grown(point: Point, name: str, checks: list[dict]) -> dict:
    """Calls while requests grow by a token each: graphs compiled on the way, and the last call against float64."""
    import torch
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    point.positions.copy_(point.start - GROWTH + 8)
    with torch.no_grad():
        for _ in range(GROWTH):
            outputs = point.functions[name](*point.inputs)
        checks += point.checks(f"{name}, {GROWTH} tokens on", outputs)
    return {"tokens": GROWTH, "recompiled": counters["stats"]["unique_graphs"] - before}


def _second(point: Point, name: str, batch: int) -> dict:
    """The first call at another batch, which is another bucket: seconds, and graphs compiled for it."""
    import torch
    from torch._dynamo.utils import counters

    from ..subjects.decode_step.buckets import narrowed
    from .decode_variants import function, pin_all

    before = counters["stats"]["unique_graphs"]
    pin_all(point.heads, batch, point.cache, point.step["keys"])
    point.positions.copy_(point.start)
    step = function(narrowed(point.stack, batch), point.switches[name])
    began = time.monotonic()
    with torch.no_grad():
        step(*(one[:batch] for one in point.inputs))
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    return {"batch": batch, "first_call_s": seconds, "graphs": counters["stats"]["unique_graphs"] - before}


def _graph(graph) -> dict:
    """Of a captured graph: how many nodes of each kind, and whether it has branches that may run side by side."""
    from ..probes.graph import describe

    seen = describe(graph.raw_cuda_graph())
    return {"nodes": seen["nodes"], "parallel": seen["parallel"]}
