"""One graph for each batch bucket of the decode step: what each takes of memory, and whether its replays stay right."""

import gc
from functools import partial
from typing import Any

from ..probes import Probe
from ..records import Subject, finite
from . import timing
from .decode_point import DEFAULTS, REPLAYS
from .decode_variants import RUNGS

DEVICE = "cuda"

RUNG = "and fused routing"
"""What the step of all buckets is: everything fused, no side streams."""

WAYS = {
    "smallest first": {"ascending": True},
    "a pool each": {"shared": False},
    "largest first": {},
}
"""Pools and orders that are compared; the last one is what is replayed."""

ROUNDS, BETWEEN = 4, 40
"""Rounds of batches; before each but the first, all requests grow by so many tokens."""


def plan_buckets(params: Any, options: dict) -> list[Probe]:
    """The probe of the buckets: one layer of each kind, the parameters' batches as sizes, their least context."""
    asked = {
        "part": "buckets",
        "layers": list(options.get("layers", ("swa", "csa", "hca"))),
        "sizes": sorted(set(params.batches)),
        "context": max(512, min(*params.contexts, *params.max_contexts)),
        "max_context": max(512, min(params.max_contexts)),
        "step": {name: value for name, value in options.items() if name in DEFAULTS},
    }
    return [
        Probe(
            kind="sweep",
            subject=Subject(target=params.subject, options=asked),
            job="capturebook.measure.decode_buckets:run",
            args={"samples": params.samples},
            seed=params.seed,
            exclusive=True,
            deadline=params.deadline,
            label=f"batch buckets {', '.join(map(str, asked['sizes']))}",
        )
    ]


def run(ctx) -> dict:
    """Job: graphs for all sizes, their memory by pool and order, and replays of padded batches against float64."""

    from ..subjects.decode_step.buckets import Buckets
    from ..subjects.decode_step.ops import triton_ops
    from ..subjects.decode_step.step import assemble, starts
    from .decode_variants import pin_all

    asked, switches = ctx.probe.subject.options, RUNGS[RUNG]
    step, sizes = {**DEFAULTS, **asked["step"]}, asked["sizes"]
    grown = ROUNDS * len(batches_of(sizes)) + (ROUNDS - 1) * BETWEEN + len(WAYS)
    ctx.stage("build")
    place = {"batch": sizes[-1], "context": asked["context"], "max_context": asked["max_context"]}
    stack = assemble(asked["layers"], **step, **place, device=DEVICE)
    stack.requests.positions.copy_(starts(sizes[-1], asked["context"]) - grown)
    shape = stack.layers[0].attention.shape
    ops = triton_ops(switches.kernel, switches.indexer, switches.glue, switches.router)
    pin = partial(pin_all, shape.heads, cache=step["cache"], keys=step["keys"])
    ctx.stage("capture")
    memory, capture_s, buckets = {}, {}, None
    for way, how in WAYS.items():
        del buckets
        gc.collect()
        buckets = Buckets(stack, ops, sizes, shape.hidden, pin, **how)
        memory[way], capture_s[way] = buckets.graph_bytes, buckets.capture_s
        _steps(buckets, ctx.seed, sizes[:1], shape)  # a graph takes the rest of its memory when it is first replayed
    ctx.stage("verify")
    checks, replays = _growing(buckets, ctx.seed, shape, 4e-2 if step["experts"] == "fp8" else 2e-2)
    payload = {
        **{name: asked[name] for name in ("part", "layers", "sizes", "context", "max_context")},
        "step": step,
        "rung": RUNG,
        "replays": replays,
        "grown": grown,
    }
    bad = [check for check in checks if not check["ok"]]
    if bad:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
    ctx.stage("time")
    samples = timing.interleave(dict(zip(map(str, sizes), sizes)), ctx.args["samples"], _timed(buckets))
    payload["buckets"] = [
        {
            "size": size,
            "capture_s": capture_s["largest first"][size],
            "memory": {way: list(of[size]) for way, of in memory.items()},
            "error": max(check["error"] for check in checks if check["call"].startswith(f"bucket {size},")),
            **timing.spread(samples[str(size)]),
        }
        for size in sizes
    ]
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


def batches_of(sizes: list[int]) -> list[int]:
    """Batches that are asked of the buckets in one round: each size itself, and one that is padded to it."""
    padded = [below + max(1, (size - below) // 2) for below, size in zip(sizes, sizes[1:])]
    return sorted({*sizes, *padded}, reverse=True)


def _growing(buckets, seed: int, shape, tolerance: float) -> tuple[list[dict], int]:
    """(checks, replays) of rounds of batches of all sizes while requests grow, each of them held to float64; what grows
    in between is not. Idle rows are given their position back: their requests are paused, not ended."""
    checks, replays, positions = [], 0, buckets.stack.requests.positions
    for turn in range(ROUNDS):
        if turn:
            _steps(buckets, seed + turn, [len(positions)] * BETWEEN, shape)
        for batch in batches_of(buckets.sizes):
            before = positions.clone()
            found = _steps(buckets, seed + turn, [batch], shape, check=True)
            size = buckets.bucket(batch)
            for name, error in found.items():
                call = f"bucket {size}, batch {batch}, round {turn}"
                one = {"call": call, "output": name, "error": finite(error), "tolerance": tolerance}
                checks.append(one | {"ok": error <= tolerance})
            moved = bool((positions[:batch] == before[:batch] + 1).all() and (positions[size:] == before[size:]).all())
            call = f"bucket {size}, batch {batch}, round {turn}"
            checks.append({"call": call, "output": "positions", "error": 0.0, "tolerance": 0.0, "ok": moved})
            positions[batch:size] = before[batch:size]
            replays += 1
    return checks, replays + (ROUNDS - 1) * BETWEEN


def _steps(buckets, seed: int, batches: list[int], shape, check: bool = False) -> dict[str, float]:
    """Steps of these batches on inputs of this seed; with `check` the errors of the last one."""
    import torch

    from ..subjects.decode_step import reference
    from ..subjects.decode_step.buckets import narrowed

    generator, positions = torch.Generator().manual_seed(seed), buckets.stack.requests.positions
    streams = torch.randn(len(positions), 4, shape.hidden, generator=generator).to(DEVICE, torch.bfloat16)
    tokens = torch.randint(shape.vocabulary, (len(positions),), generator=generator).to(DEVICE)
    for batch in batches:
        outputs = buckets(streams[:batch], tokens[:batch])
    torch.cuda.synchronize()
    if not check:
        return {}
    part = narrowed(buckets.stack, batch)
    part.requests.positions.sub_(1)  # the reference takes the same token in again, in copies of the caches
    found = reference.errors(part, streams[:batch], tokens[:batch], outputs)
    part.requests.positions.add_(1)
    return found


def _timed(buckets):
    """us of one replay of a size, of REPLAYS in a row."""
    import torch

    positions = buckets.stack.requests.positions
    start = positions.clone()

    def one(size: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        positions.copy_(start)
        torch.cuda._sleep(200_000)
        begin.record()
        for _ in range(REPLAYS):
            buckets.replay(size)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / REPLAYS

    return one
