"""Tables from records: build rows and sweep points. Reads records alone, so any machine can make them from a run."""

from ..records import Record


def build_rows_of(records: list[Record]) -> list[dict]:
    """The build rows of a run, compilers that died among them; the last record of each compilation."""
    last = {record.probe: record for record in records if record.kind == "build" and "index" in _asked(record)}
    return [row_of(record) for record in last.values()]


def row_of(record: Record) -> dict:
    """One compilation: target, kernel, config, pinned; status and reason; if it compiled, the figures.

    The figures are those of `crosscompile.compile_row`: registers, spills, stack, shared, shared_limit, instructions,
    occupancy, fits, triton, ptxas and what goes with them.
    """
    figures = record.payload if record.status == "pass" else {}
    return {**_asked(record), "status": record.status, "reason": why(record), **figures}


def sweep_points(records: list[Record]) -> list[dict]:
    """The sweep of a run, one dict for each variant of each batch and context; the last record of each point.

    All have variant, kernel, tuning, batch, context (None for a step without), status, reason and us (samples, [] if
    not timed). A timed one also has the payload's bytes, flops, floor_us, floor_bound, floor_source and `sweep.speed`'s
    median_us, p10_us, p90_us, gbps, tflops, share and tokens_per_second. A variant that the payload's `left` names is
    skipped, with that reason.
    """
    last = {record.probe: record for record in records if record.kind == "sweep"}
    points = []
    for asked, payload, samples, ended in (place for record in last.values() for place in _places(record)):
        apart = ("variants", "left", "build", "places", "status", "reason")
        shared = {name: value for name, value in {**asked, **payload}.items() if name not in apart}
        timed, left = payload.get("variants", {}), payload.get("left", {})
        for name, variant in asked.get("variants", timed).items():
            end = {**ended, "us": samples.get(name, [])}
            if ended["status"] == "pass" and name in left:
                end |= {"status": "skipped", "reason": left[name]}
            points.append({"variant": name, "context": None, **variant, **shared, **end, **timed.get(name, {})})
    return points


def entries_of(point: dict) -> float | None:
    """Entries that a request of a sparse MLA point reads, on average over batch and input sets; None of other points.

    Points recorded before they said so have their FLOPs: FlashMLA's model, 2 * heads * entries * (d_qk + 512).
    """
    if "entries" in point or not point.get("lists") or not point.get("flops"):
        return point.get("entries")
    key = 576 if point["cache"] == "v32" else 512
    return point["flops"] / (2 * point["heads"] * (key + 512)) / point["batch"]


def counters_of(records: list[Record]) -> list[dict]:
    """What a profiler counted, one dict for each kernel of each variant, in the order of launches; the last record of
    each sweep point.

    All have variant, batch, context, shape, cache, heads, tool, gpu; kernel, grid, block, us (under the profiler);
    shares 0 to 1: issue, tensor, dram, l2, l1, warps; and waits: [(reason, cycles a warp waited for an instruction)],
    the most first, without the cycle in which it was issued.
    """
    last = {record.probe: record for record in records if record.kind == "counters" and record.status == "pass"}
    found = []
    for payload in (record.payload for record in last.values()):
        shared = {name: value for name, value in payload.items() if name != "kernels"}
        for variant, kernels in payload["kernels"].items():
            for kernel in kernels:
                stalls = {name: cycles for name, cycles in kernel["stalls"].items() if name != "selected" and cycles}
                waits = sorted(stalls.items(), key=lambda stall: -stall[1])
                found.append({**shared, **kernel, "variant": variant, "waits": waits})
    return found


def _places(record: Record):
    """(asked, payload, samples by variant, {"status", "reason"}) of a sweep record, for each place it was asked for.

    A record of several places has what it found of each under "places" by `place_name`, with a status and a reason of
    its own where it has no times.
    """
    asked, ended = _asked(record), {"status": record.status, "reason": why(record)}
    if "places" not in asked:
        yield asked, record.payload, record.samples, ended
        return
    for place in asked["places"]:
        found = record.payload.get("places", {}).get(place_name(place), {})
        own = {"status": found["status"], "reason": found["reason"]} if "status" in found else ended
        samples = {name: record.samples.get(sample_name(place, name), []) for name in place["variants"]}
        yield {**asked, **place}, {**record.payload, **found}, samples, own


def place_name(place: dict) -> str:
    """What a record calls a place: `batch 8, context 2048 of 131072`; `, full lengths` where it says which."""
    lengths = f", {place['lengths']} lengths" if "lengths" in place else ""
    return f"batch {place['batch']}, context {place['context']} of {place['max_context']}{lengths}"


def sample_name(place: dict, variant: str) -> str:
    """What a record of several places calls a variant's samples at one of them."""
    return f"{variant}, {place_name(place)}"


def _asked(record: Record) -> dict:
    return record.subject.options if record.subject else {}


def why(record: Record) -> str:
    """Why a record did not pass, in one line: its reason, else the root exception's first line; "" if it did."""
    if record.reason or not record.root:
        return record.reason
    text = record.root.text.strip().splitlines()
    return f"{record.root.type}: {text[0]}" if text else record.root.type
