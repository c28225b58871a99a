"""The sweep of the indexer: for a batch, context and maximum context, both kernels checked, then timed side by side."""

from functools import partial
from typing import Any

from ..probes import Probe
from ..records import Subject, finite
from . import timing
from .floors import floor_of
from .gpu_processes import foreign_processes, refusal
from .own_inputs import distinct_bytes, warm
from .poison import fresh_memory_is_nan
from .sweep import speed

SELECT = "capturebook.kernels.indexer:select"

METHOD = "One indexer call (scores and selection) inside a captured graph, on keys that are not in the cache"
TOKENS = "batch / time of one indexer call: what this step alone would allow, one layer, nothing else running"


def plan_indexer_sweep(params: Any, rates: dict, tuning: str = "live") -> list[Probe]:
    """One probe for each batch, context and maximum context of the parameters, each holding the GPU alone.

    A context beyond a maximum is no point of it. The format of the keys is that of the subject's options.
    rates: what `sweep.rates` returns. tuning: "live" or "pinned". Raises ValueError for a format that there is not.
    """
    key_format = params.options.get("key_format", "bf16")
    if key_format not in ("bf16", "fp8"):
        raise ValueError(f"key_format: {key_format!r}; allowed: bf16, fp8")
    variants = {kernel: {"kernel": kernel, "tuning": tuning} for kernel in params.kernels}
    return [
        Probe(
            kind="sweep",
            subject=Subject(
                target=SELECT,
                options={"variants": variants, "batch": batch, "context": context, "max_context": max_context}
                | {"key_format": key_format},
            ),
            job="capturebook.measure.indexer_sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib, "rates": rates},
            seed=params.seed,
            exclusive=True,
            deadline=max(params.deadline, 120.0),
            label=f"sweep batch {batch}, context {context} of {max_context}",
        )
        for max_context in params.max_contexts
        for context in params.contexts
        for batch in params.batches
        if context <= max_context
    ]


def run(ctx) -> dict:
    """Job: check every variant against float64, then time all of them interleaved; samples {variant: [us a call]}.

    `wrong` if one variant is: a record that did not pass carries no time, so the others have none here either.
    `skipped` if the inputs do not fit into memory, `not_run` beside another process on the GPU.
    """
    import torch

    from ..kernels.indexer.inputs import make_inputs

    ctx.stage("build")
    found = foreign_processes()
    if found:
        return refusal(found)
    a = {**ctx.probe.subject.options, **ctx.args}
    point = {name: a[name] for name in ("batch", "context", "max_context", "key_format")}
    payload = {**point, "method": METHOD, "tokens_per_second_means": TOKENS}
    free, _ = torch.cuda.mem_get_info()
    sets, problem = fit(a, timing.l2_bytes(), free)
    if problem:
        return {"status": "skipped", "reason": problem, "payload": payload}
    inputs = [make_inputs(ctx.seed + i, **point, device="cuda") for i in range(sets)]
    payload |= costs(a, inputs)
    functions = {name: prepare(variant, a["key_format"]) for name, variant in a["variants"].items()}
    for function in functions.values():
        function(*inputs[0].args())  # compiles, and tunes if it is live, so that the checked call is the timed one
    ctx.stage("verify")
    checks = [verify(name, function, inputs[0]) for name, function in functions.items()]
    bad = [check for check in checks if not check["ok"]]
    if bad:
        text = "; ".join(f"{c['call']}: the selection is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
    ctx.stage("time")
    calls = {name: [partial(function, *one.args()) for one in inputs] for name, function in functions.items()}
    samples = timing.time_variants(calls, a["samples"])
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    payload["variants"] = {
        name: {**a["variants"][name], "config": chosen(variant["kernel"]), **speed(samples[name], payload)}
        for name, variant in a["variants"].items()
    }
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


def fit(a: dict, l2_bytes: int, free: int) -> tuple[int, str]:
    """How many input sets: enough for their keys to be cold, two at least; and what is in the way of that, or "".

    a: batch, context, max_context, key_format, and memory_gib that a point may use, 0 for 70 % of what is free. The
    scores of two calls count too.
    """
    from ..kernels.indexer.formats import KEY_BYTES, PAGE
    from ..kernels.indexer.launch import RATIO

    batch, room = a["batch"], a["max_context"] // RATIO
    budget = min(int(a["memory_gib"] * 2**30 or 0.7 * free), free)
    keys = batch * -(-(a["context"] // RATIO) // PAGE) * PAGE * KEY_BYTES[a["key_format"]]
    each = keys + batch * room // PAGE * 4
    scratch = 2 * batch * room * 4
    wanted = timing.cold_sets(7 / 8 * keys, l2_bytes, least=2)
    sets = min(wanted, (budget - scratch) // each)
    if sets >= 2:
        return int(sets), ""
    return 0, f"needs {(2 * each + scratch) / 2**30:.1f} GiB of GPU memory, {budget / 2**30:.1f} are there"


def prepare(variant: dict, key_format: str = "bf16"):
    """`select` with the variant's kernel; a pinned variant's autotuners are left their pinned configuration."""
    import torch

    from ..kernels.indexer import pinned, select

    if variant["tuning"] == "pinned":
        major, minor = torch.cuda.get_device_capability()
        pinned.pin(variant["kernel"], major * 10 + minor, key_format)
    elif variant["tuning"] != "live":
        raise ValueError(f"tuning: {variant['tuning']!r}; allowed: live, pinned")
    return partial(select, kernel=variant["kernel"])


def chosen(kernel: str) -> str:
    """What a kernel's autotuners have in use here, each after its name."""
    from ..kernels.indexer.pinned import TUNERS
    from .specialise import config_text

    shown = []
    for name, tuner in TUNERS[kernel].items():
        configs = tuner.configs if len(tuner.configs) == 1 else tuner.cache.values()
        shown += [f"{name} {text}" for text in dict.fromkeys(config_text(config) for config in configs)]
    return "; ".join(shown)


def verify(name: str, function, inputs) -> dict:
    """The check of one selection, made in poisoned memory, against float64, as records hold it."""
    from ..kernels.indexer import error, reference, scores_reference

    with fresh_memory_is_nan():
        slots = function(*inputs.args())
    off = error(slots, scores_reference(*inputs.args()), inputs.page_table, inputs.lengths)
    tolerance = reference.TOLERANCE
    return {"call": name, "output": "out", "error": finite(off), "tolerance": tolerance, "ok": off <= tolerance}


def costs(a: dict, inputs: list) -> dict:
    """What a call moves and computes by the cost model, whatever the variant, and the floor."""
    from ..kernels.indexer.cost import select_cost
    from ..kernels.indexer.formats import KEY_BYTES

    keys = round(sum(int(one.lengths.sum()) for one in inputs) / len(inputs))
    cost = select_cost(a["batch"], keys, key_bytes=KEY_BYTES[a["key_format"]])
    cold = warm(distinct_bytes([(one.keys,) for one in inputs]), len(inputs), timing.l2_bytes())
    found = {"sets": len(inputs), "left_out": cold, "bytes": cost.bytes, "flops": cost.flops}
    return found | floor_of(cost.bytes, cost.flops, a["rates"])
