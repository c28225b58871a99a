"""The throughput sweep: for one batch and context, every kernel checked, then timed side by side in one process."""

import time
from collections.abc import Iterable
from typing import Any

from ..probes import Probe
from ..records import Record, Subject
from . import peers, timing, variants
from .ahead import compile_ahead
from .floors import rate
from .gpu_processes import foreign_processes, refusal
from .sweep_point import common, draw, fit, with_heads

DECODE = "capturebook.kernels.sparse_mla:decode"

SHAPES = ("flash", "pro", "hca", "window", "mixed", "v32", "tp8")
"""Names of kernels.sparse_mla.shapes, which stand where importing brings torch; a test holds them equal."""


def plan_sweep(params: Any, rates: dict, tuning: str = "live") -> list[Probe]:
    """One probe for each shape, batch and context of the parameters, each holding the GPU alone.

    rates: what `rates` below returns. tuning: "live" (autotuned in the process, before the check) or "pinned". The
    parameters' options may say `tuning` too, `shapes` (names of kernels.sparse_mla.shapes, such as "pro" or "flash
    bf16", a list, or a mapping with batches of their own; V4-Flash's) and `peers` (names of measure.peers; none).
    Shapes without heads or format of their own have the parameters'. Peers stand beside the formats that they read;
    one that reads none of them is in every point, to say so. The first point compiles for all. Raises ValueError.
    """
    asked = params.options
    for peer in asked.get("peers", []):
        if peer not in peers.PEERS:
            raise ValueError(f"peers: {peer!r}; allowed: {', '.join(peers.PEERS)}")
    tuning = asked.get("tuning", tuning)
    if tuning not in ("live", "pinned"):
        raise ValueError(f"tuning: {tuning!r}; allowed: live, pinned")
    shapes = _shapes(asked.get("shapes", ["flash"]), params.batches, params.cache)
    formats = {cache for _, cache, _ in shapes}
    points = []
    for shape, cache, batches in shapes:
        own = {kernel: {"kernel": kernel, "tuning": tuning} for kernel in params.kernels}
        for peer in asked.get("peers", []):
            reads = peers.PEERS[peer].caches
            if cache in reads or not formats & set(reads):
                own[peer] = {"kernel": peer, "tuning": "none"}
        named = {name if cache == "bf16" else f"{name} {cache}": variant for name, variant in own.items()}
        every = {"variants": named, "shape": shape, "heads": params.heads, "cache": cache}
        points += [{**every, "batch": n, "context": context} for context in params.contexts for n in batches]
    args = {"samples": params.samples, "memory_gib": params.memory_gib, "rates": rates}
    return [
        point_probe(point, args | ({"ahead": points[1:]} if point is points[0] else {}), params) for point in points
    ]


def _shapes(asked: Any, batches: list[int], cache: str) -> list[tuple[str, str, list[int]]]:
    """(shape, cache format, its batches) of the option `shapes`, a list or a mapping. Raises ValueError naming it.

    The format is what stands after the name, V3.2's own, else `cache`.
    """
    found = []
    for name, own in asked.items() if isinstance(asked, dict) else [(name, batches) for name in asked]:
        if not own or not all(isinstance(batch, int) and batch > 0 for batch in own):
            raise ValueError(f"shapes: {name}: {own!r}; allowed: batches, numbers above 0")
        shape, _, own_cache = name.partition(" ")
        if shape not in SHAPES or own_cache not in ("", "bf16", "fp8") or own_cache and shape == "v32":
            allowed = f"{', '.join(SHAPES)}, those of V4 with bf16 or fp8 after it"
            raise ValueError(f"shapes: {name!r}; allowed: {allowed}")
        found.append((shape, own_cache or ("v32" if shape == "v32" else cache), own))
    return found


def point_probe(options: dict, args: dict, params: Any, job: str = "capturebook.measure.sweep:run") -> Probe:
    """The probe of one point: options (variants, shape, heads, cache, batch, context), `run`'s other arguments."""
    own = options["cache"] if options["cache"] not in (params.cache, options["shape"]) else ""
    shape = " ".join(word for word in (options["shape"].replace("flash", ""), own) if word)
    shape += ", " if shape else ""
    return Probe(
        kind="sweep",
        subject=Subject(target=DECODE, options=options),
        job=job,
        args=args,
        seed=params.seed,
        exclusive=True,
        deadline=max(params.deadline, 120.0),
        label=f"sweep {shape}batch {options['batch']}, context {options['context']}",
    )


def run(ctx) -> dict:
    """Job: `measure` of the point that the probe's options and arguments describe. args["ahead"]: points after it."""
    a = {**ctx.probe.subject.options, **ctx.args}
    return measure(with_heads(a), ctx, [with_heads(point) for point in a.get("ahead", [])])


def measure(a: dict, ctx, ahead: Iterable[dict] = ()) -> dict:
    """Check every variant against float64, then time all of them interleaved; samples {variant: [us a call]}.

    Kernels are compiled side by side, with those of the points `ahead`, whose processes then find them in the cache.
    The payload's `seconds` say what took how long.

    `wrong` if one of ours is: a record that did not pass carries no time, so the others have none here either. A peer
    or a candidate of a tuning that cannot run here, or is wrong, is left out, and the payload's `left` says why.
    `skipped` if the inputs do not fit into memory, `not_run` beside another process on the GPU.
    """
    import torch

    from ..kernels.sparse_mla import decode_reference

    ctx.stage("build")
    found = foreign_processes()
    if found:
        return refusal(found)
    watch = Watch()
    free, _ = torch.cuda.mem_get_info()
    budget = int(a["memory_gib"] * 2**30 or 0.7 * free)
    size = fit(a, timing.l2_bytes(), min(budget, free))
    if size.problem:
        return {"status": "skipped", "reason": size.problem, "payload": common(a, size, None)}
    inputs = draw(a, size, ctx.seed, "cuda")
    payload = common(a, size, inputs) | {"left": {}, "seconds": watch.seconds}
    payload["gpu"] = torch.cuda.get_device_name()
    watch.lap("inputs")
    compile_ahead([a, *ahead])
    watch.lap("compile")
    calls = calls_of(a, inputs, payload["left"])
    watch.lap("first calls")
    ctx.stage("verify")
    checks, exact = [], decode_reference(*inputs[0].args())
    for name in list(calls):
        found = variants.verify(name, calls[name][0], inputs[0], lambda *args: exact)
        bad = "; ".join(f"{c['output']} is off by {c['error']}" for c in found if not c["ok"])
        if bad and _may_fail(a["variants"][name]):
            payload["left"][name] = f"{bad} (not timed)"
            del calls[name]
        else:
            checks += found
    bad = [check for check in checks if not check["ok"]]
    if bad:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
    watch.lap("verify")
    ctx.stage("time")
    samples = timing.time_variants(calls, a["samples"])
    watch.lap("time")
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    payload["variants"] = {name: told(a["variants"][name], a, samples[name], payload) for name in calls}
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


def calls_of(a: dict, inputs: list, left: dict) -> dict[str, list]:
    """{variant: a call for each input set}, all compiled and tuned; peers that cannot be here are named in `left`."""
    import torch
    from triton.runtime.errors import OutOfResources

    major, minor = torch.cuda.get_device_capability()
    found = {}
    for name, variant in a["variants"].items():
        reason = variants.missing(variant["kernel"], a["cache"], a["heads"], major * 10 + minor)
        if reason:
            left[name] = reason
            continue
        setup = variants.prepare(variant, a["heads"], a["batch"], a["cache"])
        try:
            calls = [setup(one) for one in inputs]
            calls[0]()  # compiles, and tunes if it is live, so that the checked call is the timed one
        except OutOfResources as exc:
            if not _may_fail(variant):
                raise
            left[name] = str(exc)
        except (RuntimeError, AssertionError) as exc:  # what a peer refuses says nothing about ours
            if variant["kernel"] not in peers.PEERS:
                raise
            left[name] = f"{type(exc).__name__}: {str(exc).strip().splitlines()[0] if str(exc).strip() else ''}"
        else:
            found[name] = calls
    return found


class Watch:
    """Seconds of what is done one after another: {what: s}, rounded."""

    def __init__(self):
        self.seconds, self._last = {}, time.monotonic()

    def lap(self, what: str) -> None:
        now = time.monotonic()
        self.seconds[what], self._last = round(now - self._last, 2), now


def _may_fail(variant: dict) -> bool:
    """Whether the others are timed without it: peers, and candidates of a tuning."""
    return variant["kernel"] in peers.PEERS or variant["tuning"] == "given"


def told(variant: dict, a: dict, samples: list[float], payload: dict) -> dict:
    """What the payload holds of one variant that was timed."""
    from ..kernels.sparse_mla.shapes import shape_of

    lists = shape_of(a["shape"]).inputs(a["context"])
    config = variants.chosen(variant, a["heads"], a["batch"], (lists["window"], lists["topk"]), a["cache"])
    padded = variants.padded_heads(variant, a["heads"], config)
    kwargs = {"config_kwargs": variant["config"]} if "config" in variant else {}
    return {**variant, **kwargs, "config": config, "padded_heads": padded, **speed(samples, payload)}


def speed(samples: list[float], payload: dict) -> dict:
    """Median and spread in us, GB/s and TFLOP/s by the cost model, share of the floor (1 is the floor), tok/s.

    TFLOP/s is None where the payload's flops are: what a user's own step computes is not known.
    """
    middle = timing.spread(samples)
    us = middle["median_us"]
    return {
        **middle,
        "gbps": rate(payload["bytes"], us) * 1e3,
        "tflops": rate(payload["flops"], us) if payload["flops"] is not None else None,
        "share": payload["floor_us"] / us if payload["floor_us"] else None,
        "tokens_per_second": payload["batch"] / us * 1e6,
    }


def rates(params: Any, floors: list[Record]) -> dict:
    """{"tb_s", "tflops", "source"} behind the floors: the preset's figures, else those measured in this run.

    A figure that is neither leaves {}: then no floor is shown.
    """
    measured = next((r.payload for r in floors if r.kind == "floor" and r.status == "pass"), {})
    names = {"tb_s": params.dram_tb_s, "tflops": params.tensor_tflops}
    found = {name: given or measured.get(name) for name, given in names.items()}
    if not all(found.values()):
        return {}
    given = [name for name, value in names.items() if value]
    sources = {2: f"preset {params.preset}", 0: measured.get("source", "")}
    mixed = f"preset {params.preset} ({', '.join(given)}), the other {measured.get('source', '')}"
    return {**found, "source": sources.get(len(given), mixed)}
