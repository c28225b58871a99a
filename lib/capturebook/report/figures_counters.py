"""What a GPU's counters say of the kernels of sweep points: how busy each part was, and what the warps waited for."""

from . import words
from .block import Block, table

WAITS = {
    "wait": "the last instruction's result",
    "long_scoreboard": "memory",
    "short_scoreboard": "shared memory",
    "barrier": "a barrier",
    "gmma": "wgmma",
    "lg_throttle": "room for loads",
    "mio_throttle": "room for shared memory",
    "math_pipe_throttle": "a busy pipe",
    "not_selected": "another warp's turn",
    "no_instruction": "the next instruction",
    "branch_resolve": "a branch",
    "dispatch_stall": "dispatch",
    "membar": "a fence",
    "sleeping": "sleep",
}
"""Nsight Compute's reasons for a warp's stall, by the end of their names; one that is not here is shown as it is."""

SHARES = {
    "issue": "Issues",
    "tensor": "Tensor pipe",
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1, shared",
    "warps": "Warps",
}
"""Shares of a peak by their names in the records: issue, of a scheduler's cycles; warps, of those an SM can hold."""


def counted(rows: list[dict], missed: list[tuple]) -> Block:
    """One row for each kernel of a variant, as measure.rows.counters_of gives them; places with a missed target first.

    missed: (shape, cache, context, batch).
    """
    places = [(r["shape"], r["cache"], r["context"], r["batch"]) for r in rows]
    order = sorted(range(len(rows)), key=lambda n: (places[n] not in missed, n))
    tools = words.listed(list(dict.fromkeys(f"{r['tool']} on {words.a(r['gpu'])}" for r in rows)))
    caption = (
        f"Counters by {tools}, points with a missed target first: shares of what the GPU can do while the kernel runs, "
        "and cycles that a warp waited for an instruction. The counters take replays of their own, at other clocks: "
        "their times are not those above."
    )
    columns = ["Where", "Variant", "Kernel", "µs there", *SHARES.values(), "Waits most for"]
    return table(columns, [_row(rows[n], places[n] in missed) for n in order], caption, stack=True)


def _row(r: dict, missed: bool) -> list:
    where = f"{r['shape']} in {r['cache']}, batch {r['batch']}{', target missed' if missed else ''}"
    shares = [f"{r[name]:.0%}" if r.get(name) is not None else None for name in SHARES]
    waits = [f"{WAITS.get(name, name)} {cycles:.2f}" for name, cycles in r["waits"][:2]]
    return [where, r["variant"], words.breakable(r["kernel"]), f"{r['us']:.1f}", *shares, ", ".join(waits)]
