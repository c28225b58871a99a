"""The sweep of the indexer: at each batch, context and maximum, whole calls and kernels alone, checked, then timed.

Places of one format of the keys share a process: to start one and compile takes longer than to measure a place.
"""

from collections.abc import Iterable
from typing import Any

from ..probes import Probe
from ..records import Subject
from . import indexer_parts, timing
from .floors import floor_of
from .gpu_processes import foreign_processes, refusal
from .own_inputs import distinct_bytes, warm
from .rows import place_name, sample_name
from .several_places import in_turn, outcome
from .sweep import speed

SELECT = "capturebook.kernels.indexer:select"

FORMATS, LENGTHS = ("bf16", "fp8"), ("near", "full")
"""Those of kernels.indexer, which stand where importing brings torch; a test holds them equal."""

METHOD = (
    "One indexer call (scores and selection) inside a captured graph, on keys that are not in the cache; a selection "
    "alone may find its scores there, as in a call, which has just written them. Full lengths: a request has all keys "
    "of its context; near: 7/8 of them and more"
)
TOKENS = "batch / time of one indexer call: what this step alone would allow, one layer, nothing else running"


def plan_indexer_sweep(params: Any, rates: dict, tuning: str = "live") -> list[Probe]:
    """One probe for each format of the keys, with a place for each batch, context and maximum of the parameters.

    A context beyond a maximum is no place of it. The parameters' options may say `tuning` ("live" or "pinned"),
    `key_format` and `lengths` (see kernels.indexer.inputs), each one or a list. Lengths after the first are measured at
    the first maximum alone: how long requests are and what they have room for are two questions.
    rates: what `sweep.rates` returns. Raises ValueError.
    """
    tuning = params.options.get("tuning", tuning)
    if tuning not in ("live", "pinned"):
        raise ValueError(f"tuning: {tuning!r}; allowed: live, pinned")
    formats = _listed("key_format", params.options.get("key_format", "bf16"), FORMATS)
    lengths = _listed("lengths", params.options.get("lengths", "near"), LENGTHS)
    variants = indexer_parts.variants_of(params.kernels, tuning)
    places = [
        {"batch": batch, "context": context, "max_context": most, "lengths": length, "variants": variants}
        for length in lengths
        for most in (params.max_contexts if length == lengths[0] else params.max_contexts[:1])
        for context in params.contexts
        for batch in params.batches
        if context <= most
    ]
    return [
        Probe(
            kind="sweep",
            subject=Subject(target=SELECT, options={"key_format": key_format, "places": places}),
            job="capturebook.measure.indexer_sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib, "rates": rates},
            seed=params.seed,
            exclusive=True,
            deadline=max(params.deadline, 120.0) + 5.0 * len(places),
            label=f"indexer sweep: {key_format} keys, {place_name(places[0])}"
            + (f" and {len(places) - 1} more" if places[1:] else ""),
        )
        for key_format in formats
        if places
    ]


def _listed(name: str, given: Any, allowed: tuple[str, ...]) -> list[str]:
    """What an option names, one or several. Raises ValueError for what is not allowed."""
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(one in allowed for one in found):
        raise ValueError(f"{name}: {given!r}; allowed: {', '.join(allowed)}, or a list of them")
    return list(dict.fromkeys(found))


def run(ctx) -> dict:
    """Job: at each place every variant against the truth, then timed in turns; samples by rows.sample_name, us a call.

    A place where one variant is wrong has no times, and says so; one that does not fit is skipped. `not_run` beside
    another process on the GPU.
    """
    import torch

    found = foreign_processes()
    if found:
        return refusal(found)
    asked = ctx.probe.subject.options
    payload = ctx.fields["payload"] = {"key_format": asked["key_format"], "gpu": torch.cuda.get_device_name()}
    payload |= {"method": METHOD, "tokens_per_second_means": TOKENS, "places": {}}
    checks, samples = [], {}

    def measure(place: dict) -> dict:
        ctx.stage("build")
        return _measured(ctx, {**asked, **place, **ctx.args}, place, checks, samples)

    in_turn(asked["places"], measure, payload["places"])
    return outcome(payload["places"], checks, samples)


def _measured(ctx, a: dict, place: dict, checks: list[dict], samples: dict) -> dict:
    """What a record holds of one place; its checks, and its samples if all is right, are added to the record's."""
    import torch

    from ..kernels.indexer import scores_reference
    from ..kernels.indexer.inputs import make_inputs

    free, _ = torch.cuda.mem_get_info()
    sets, problem = fit(a, timing.l2_bytes(), free)
    if problem:
        return {"status": "skipped", "reason": problem}
    shape = {name: a[name] for name in ("batch", "context", "max_context", "key_format", "lengths")}
    inputs = [make_inputs(ctx.seed + i, **shape, device="cuda") for i in range(sets)]
    for variant in place["variants"].values():
        indexer_parts.prepare(variant, a["key_format"])
    calls = indexer_parts.calls_of(place["variants"], inputs)
    for own in calls.values():
        own[0]()  # compiles, and tunes if it is live, so that the checked call is the timed one
    ctx.stage("verify")
    want = scores_reference(*inputs[0].args())
    parts = {name: variant["part"] for name, variant in place["variants"].items()}
    here = [indexer_parts.verify(name, parts[name], own[0], inputs[0], want) for name, own in calls.items()]
    checks += [check | {"call": sample_name(place, check["call"])} for check in here]
    if bad := [check for check in here if not check["ok"]]:
        text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
        return {"status": "wrong", "reason": f"{text} (not timed)"}
    scratch = {
        name: {"scratch_a_row": indexer_parts.scratch_a_row(own[0], a["batch"])}
        for name, own in calls.items()
        if parts[name] == "whole"
    }
    ctx.stage("time")
    us = timing.time_variants(calls, a["samples"])
    found = costs(a, inputs)
    found["variants"] = {
        name: {**variant, **_told(variant, us[name], found, a), **scratch.get(name, {})}
        for name, variant in place["variants"].items()
    }
    samples |= {sample_name(place, name): of for name, of in us.items()}
    return found


def fit(a: dict, l2_bytes: int, free: int) -> tuple[int, str]:
    """How many input sets: enough for their keys to be cold, two at least; and what is in the way of that, or "".

    a: batch, context, max_context, key_format, lengths, and memory_gib that a point may use, 0 for 70 % of what is
    free. The scores of two calls count too, and those of each set, which the selection alone reads.
    """
    from ..kernels.indexer.formats import KEY_BYTES, PAGE
    from ..kernels.indexer.inputs import SHARE
    from ..kernels.indexer.launch import RATIO

    batch, room = a["batch"], a["max_context"] // RATIO
    budget = min(int(a["memory_gib"] * 2**30 or 0.7 * free), free)
    keys = batch * -(-(a["context"] // RATIO) // PAGE) * PAGE * KEY_BYTES[a["key_format"]]
    each = keys + batch * room // PAGE * 4 + batch * room * 4
    scratch = 2 * batch * room * 4
    wanted = timing.cold_sets(SHARE[a["lengths"]] * keys, l2_bytes, least=2)
    sets = min(wanted, (budget - scratch) // each)
    if sets >= 2:
        return int(sets), ""
    return 0, f"needs {(2 * each + scratch) / 2**30:.1f} GiB of GPU memory, {budget / 2**30:.1f} are there"


def costs(a: dict, inputs: list) -> dict:
    """What a call moves and computes by the cost model, whatever the variant, and the floor; keys of all requests."""
    from ..kernels.indexer.cost import select_cost
    from ..kernels.indexer.formats import KEY_BYTES

    keys = round(sum(int(one.lengths.sum()) for one in inputs) / len(inputs))
    cost = select_cost(a["batch"], keys, key_bytes=KEY_BYTES[a["key_format"]])
    cold = warm(distinct_bytes([(one.keys,) for one in inputs]), len(inputs), timing.l2_bytes())
    found = {"sets": len(inputs), "left_out": cold, "keys": keys, "bytes": cost.bytes, "flops": cost.flops}
    return found | floor_of(cost.bytes, cost.flops, a["rates"])


def _told(variant: dict, us: list[float], point: dict, a: dict) -> dict:
    """What the payload holds of one variant that was timed; a kernel alone makes no tokens."""
    own = indexer_parts.part_costs(variant["part"], a["batch"], point["keys"], a["key_format"], a["rates"])
    found = own | speed(us, {"batch": a["batch"], **point, **own})
    found |= {"config": indexer_parts.chosen(variant["kernel"])}
    if variant["part"] != "whole":
        found["tokens_per_second"] = None
    return found | indexer_parts.read_share(own, found["median_us"], a["rates"])
