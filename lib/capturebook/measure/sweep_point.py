"""A point of the sweep: its shape, the sizes and draws of its inputs, what a call moves and computes, the floor."""

from dataclasses import dataclass

from . import timing
from .floors import floor_of

TOKENS = "batch / time of one attention call: what this kernel alone would allow, one layer, nothing else running"
"""What tok/s means here."""


def with_heads(point: dict) -> dict:
    """The point with the heads that its shape has, where it has any."""
    return {**point, "heads": shape_of(point).heads or point["heads"]}


def shape_of(a: dict):
    """The point's Shape; V4-Flash's for points that name none."""
    from ..kernels.sparse_mla import shapes

    return shapes.shape_of(a.get("shape", "flash"))


@dataclass(frozen=True)
class Size:
    """How many input sets, and how many rows the caches of each hold; `left_out`, what memory did not allow."""

    sets: int
    window_slots: int
    extra_slots: int
    left_out: tuple[str, ...] = ()
    problem: str = ""


def fit(a: dict, l2_bytes: int, budget: int) -> Size:
    """Sizes of the inputs for one point within `budget` bytes: sets enough to be cold, caches as a server would have.

    Every set has caches of its own, so no row comes twice in a replay. If those of the whole context do not fit, the
    extra cache shrinks to as few pages as the selected rows fill; then requests of one call may share rows.
    """
    from ..kernels.sparse_mla import formats_v32
    from ..kernels.sparse_mla.formats import page_stride
    from ..kernels.sparse_mla.inputs import SHARE, WINDOW_PAGE, extra_tokens
    from ..kernels.sparse_mla.launch import HEAD_DIM

    batch, lists = a["batch"], _lists(a)
    page = lists["extra_page"]
    tokens = extra_tokens(a["context"], lists["ratio"], page)
    selected = min(lists["topk"], a["context"] // lists["ratio"])
    rows = {"bf16": 2 * HEAD_DIM, "fp8": page_stride(page) / page, "v32": formats_v32.TOKEN_BYTES}
    row = rows[a["cache"]]
    listed = min(lists["window"], a["context"]) + selected
    sets = timing.cold_sets(batch * listed * SHARE[lists["lengths"]] * row, l2_bytes)
    window = batch * WINDOW_PAGE if lists["window"] else WINDOW_PAGE
    whole = batch * tokens if selected else page
    least = batch * min(tokens, -(-max(selected, 1) // page) * page) if selected else page
    allowed = int(budget // sets / row - window) // page * page
    if allowed < least:
        needed = sets * (window + least) * row
        return Size(
            sets, window, least, problem=f"needs {needed / 2**30:.1f} GiB of GPU memory, {budget / 2**30:.1f} are there"
        )
    extra = min(whole, allowed)
    left_out = (f"extra cache of {extra} rows a set, not {whole}: memory",) if extra < whole else ()
    return Size(sets, window, extra, left_out)


def _lists(a: dict) -> dict:
    """What the point's lists are. Full ones, which are what a server reads, and what targets and other figures are of;
    the kernels read the lengths from the device all the same."""
    return shape_of(a).inputs(a["context"], full=True)


def draw(a: dict, size: Size, seed: int, device: str) -> list:
    """The input sets of one point."""
    from ..kernels.sparse_mla.inputs import make_inputs

    named = _lists(a) | {"window_slots": size.window_slots, "extra_slots": size.extra_slots}
    return [
        make_inputs(seed + i, a["batch"], a["heads"], device=device, cache=a["cache"], **named)
        for i in range(size.sets)
    ]


def common(a: dict, size: Size, inputs: list | None) -> dict:
    """The part of the payload that the variants share: the point, what a call moves and computes, the floor.

    entries: that a request's lists hold, on average.
    """
    payload = {name: a[name] for name in ("batch", "context", "heads", "cache")}
    payload |= {"shape": a.get("shape", "flash"), "lists": shape_of(a).title}
    payload |= {"sets": size.sets, "left_out": list(size.left_out), "tokens_per_second_means": TOKENS}
    if inputs is None:
        return payload
    from ..kernels.sparse_mla.cost import decode_cost

    entries = sum(int(one.window_lengths.sum() + one.extra_lengths.sum()) for one in inputs) / len(inputs)
    cost = decode_cost(a["batch"], a["heads"], round(entries), cache=a["cache"])
    payload |= {"entries": entries / a["batch"], "bytes": cost.bytes, "flops": cost.flops}
    return payload | floor_of(cost.bytes, cost.flops, a["rates"])
