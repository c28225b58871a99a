"""The throughput sweep: for one batch and context, every kernel checked, then timed side by side in one process."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from ..probes import Probe
from ..records import Record, Subject, finite
from . import timing
from .floors import bound, floor_us, rate
from .gpu_processes import foreign_processes, refusal
from .poison import fresh_memory_is_nan

DECODE = "capturebook.kernels.sparse_mla:decode"

LSE_TOLERANCE = 1e-3
"""Absolute: scores are sums of 512 bf16 products in fp32."""

TOKENS = "batch / time of one attention call: what this kernel alone would allow, one layer, nothing else running"
"""What tok/s means here."""


def plan_sweep(params: Any, rates: dict, tuning: str = "live") -> list[Probe]:
    """One probe for each batch and context of the parameters, each holding the GPU alone.

    rates: what `rates` below returns. tuning: "live" (autotuned in the process, before the check) or "pinned".
    """
    names = {kernel: kernel if params.cache == "bf16" else f"{kernel} {params.cache}" for kernel in params.kernels}
    variants = {names[kernel]: {"kernel": kernel, "tuning": tuning} for kernel in params.kernels}
    point = {"variants": variants, "heads": params.heads, "cache": params.cache}
    return [
        Probe(
            kind="sweep",
            subject=Subject(target=DECODE, options={**point, "batch": batch, "context": context}),
            job="capturebook.measure.sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib, "rates": rates},
            seed=params.seed,
            exclusive=True,
            deadline=max(params.deadline, 120.0),
            label=f"sweep batch {batch}, context {context}",
        )
        for context in params.contexts
        for batch in params.batches
    ]


def run(ctx) -> dict:
    """Job: check every variant against float64, then time all of them interleaved; samples {variant: [us a call]}.

    `wrong` if one variant is: a record that did not pass carries no time, so the others have none here either.
    `skipped` if the inputs do not fit into memory, `not_run` beside another process on the GPU.
    """
    import torch

    ctx.stage("build")
    found = foreign_processes()
    if found:
        return refusal(found)
    a = {**ctx.probe.subject.options, **ctx.args}
    free, _ = torch.cuda.mem_get_info()
    budget = int(a["memory_gib"] * 2**30 or 0.7 * free)
    size = fit(a["batch"], a["context"], timing.l2_bytes(), min(budget, free), a["cache"])
    if size.problem:
        return {"status": "skipped", "reason": size.problem, "payload": common(a, size, None)}
    inputs = draw(a, size, ctx.seed, "cuda")
    functions = {name: prepare(variant, a["heads"], a["batch"], a["cache"]) for name, variant in a["variants"].items()}
    for function in functions.values():
        function(*inputs[0].args())  # compiles, and tunes if it is live, so that the checked call is the timed one
    ctx.stage("verify")
    checks = [check for name, function in functions.items() for check in verify(name, function, inputs[0])]
    payload = common(a, size, inputs)
    bad = [check for check in checks if not check["ok"]]
    if bad:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
    ctx.stage("time")
    calls = {name: [partial(function, *one.args()) for one in inputs] for name, function in functions.items()}
    samples = timing.time_variants(calls, a["samples"])
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    payload["variants"] = {
        name: {**a["variants"][name], "config": chosen(variant["kernel"], a["cache"]), **speed(samples[name], payload)}
        for name, variant in a["variants"].items()
    }
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


@dataclass(frozen=True)
class Size:
    """How many input sets, and how many rows the caches of each hold; `left_out`, what memory did not allow."""

    sets: int
    window_slots: int
    extra_slots: int
    left_out: tuple[str, ...] = ()
    problem: str = ""


def fit(batch: int, context: int, l2_bytes: int, budget: int, cache: str = "bf16") -> Size:
    """Sizes of the inputs for one point within `budget` bytes: sets enough to be cold, caches as a server would have.

    Every set has caches of its own, so no row comes twice in a replay. If those of the whole context do not fit, the
    extra cache shrinks to as few pages as the selected rows fill; then requests of one call may share rows.
    """
    from ..kernels.sparse_mla.formats import page_stride
    from ..kernels.sparse_mla.inputs import EXTRA_PAGE, WINDOW_PAGE
    from ..kernels.sparse_mla.launch import HEAD_DIM

    row = 2 * HEAD_DIM if cache == "bf16" else page_stride(EXTRA_PAGE) // EXTRA_PAGE
    least_rows = batch * (min(128, context) * 7 // 8 + min(512, context // 4) * 7 // 8)  # lengths are 7/8 and more
    sets = timing.cold_sets(least_rows * row, l2_bytes)
    window = batch * WINDOW_PAGE
    tokens = -(-max(context // 4, 1) // EXTRA_PAGE) * EXTRA_PAGE
    whole = batch * tokens
    least = batch * min(tokens, 512)
    allowed = (budget // sets // row - window) // EXTRA_PAGE * EXTRA_PAGE
    if allowed < least:
        needed = sets * (window + least) * row
        return Size(
            sets, window, least, problem=f"needs {needed / 2**30:.1f} GiB of GPU memory, {budget / 2**30:.1f} are there"
        )
    extra = min(whole, allowed)
    left_out = (f"extra cache of {extra} rows a set, not {whole}: memory",) if extra < whole else ()
    return Size(sets, window, extra, left_out)


def draw(a: dict, size: Size, seed: int, device: str) -> list:
    """The input sets of one point."""
    from ..kernels.sparse_mla.inputs import make_inputs

    slots = {"window_slots": size.window_slots, "extra_slots": size.extra_slots}
    return [
        make_inputs(seed + i, a["batch"], a["heads"], a["context"], device=device, cache=a["cache"], **slots)
        for i in range(size.sets)
    ]


def prepare(variant: dict, heads: int, batch: int, cache: str = "bf16"):
    """`decode` with the variant's kernel; a pinned variant's autotuner is left its pinned configuration."""
    import torch

    from ..kernels.sparse_mla import decode, pinned
    from ..kernels.sparse_mla.op import tuner_of

    if variant["tuning"] == "pinned":
        major, minor = torch.cuda.get_device_capability()
        config = pinned.pinned_config(variant["kernel"], major * 10 + minor, heads, batch, cache)
        pinned.pin(tuner_of(variant["kernel"], cache), config)
    elif variant["tuning"] != "live":
        raise ValueError(f"tuning: {variant['tuning']!r}; allowed: live, pinned")
    return partial(decode, kernel=variant["kernel"])


def chosen(kernel: str, cache: str = "bf16") -> str:
    """What a kernel's autotuner has in use here: its only configuration, or the winners of this process."""
    from ..kernels.sparse_mla.op import tuner_of
    from .specialise import config_text

    tuner = tuner_of(kernel, cache)
    configs = tuner.configs if len(tuner.configs) == 1 else tuner.cache.values()
    return "; ".join(dict.fromkeys(config_text(config) for config in configs))


def verify(name: str, function, inputs) -> list[dict]:
    """Checks of out and lse of one call into poisoned memory against float64, as records hold them."""
    from ..kernels.sparse_mla import decode_reference, reference

    with fresh_memory_is_nan():
        out, lse = function(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    found = (
        ("out", reference.error(out, want), reference.TOLERANCE),
        ("lse", reference.lse_error(lse, want_lse), LSE_TOLERANCE),
    )
    return [
        {"call": name, "output": output, "error": finite(error), "tolerance": tolerance, "ok": error <= tolerance}
        for output, error, tolerance in found
    ]


def common(a: dict, size: Size, inputs: list | None) -> dict:
    """The part of the payload that the variants share: the point, what a call moves and computes, the floor."""
    payload = {name: a[name] for name in ("batch", "context", "heads", "cache")}
    payload |= {"sets": size.sets, "left_out": list(size.left_out), "tokens_per_second_means": TOKENS}
    if inputs is None:
        return payload
    from ..kernels.sparse_mla.cost import decode_cost

    entries = sum(int(one.window_lengths.sum() + one.extra_lengths.sum()) for one in inputs) / len(inputs)
    cost = decode_cost(a["batch"], a["heads"], round(entries), cache=a["cache"])
    payload |= {"bytes": cost.bytes, "flops": cost.flops, "floor_us": None, "floor_bound": None, "floor_source": None}
    if a["rates"]:
        tb_s, tflops = a["rates"]["tb_s"], a["rates"]["tflops"]
        payload["floor_us"] = floor_us(cost.bytes, cost.flops, tb_s, tflops)
        payload["floor_bound"] = bound(cost.bytes, cost.flops, tb_s, tflops)
        payload["floor_source"] = a["rates"]["source"]
    return payload


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
