"""What is timed of the indexer: whole calls, and the two kernels of the bounded path apart. Each is checked first.

The scores alone are launched as in a call. The selection alone reads scores that the first kernel wrote before: in a
call, too, they were written a moment ago.
"""

from functools import partial

from ..records import finite
from .floors import floor_of, rate
from .poison import fresh_memory_is_nan

TOPK = 512
"""Keys that a request selects, V4's index_topk."""


def variants_of(kernels: list[str], tuning: str) -> dict[str, dict]:
    """Whole calls of each kernel, and the kernels of "bounded" alone where that is among them."""
    found = {kernel: {"kernel": kernel, "tuning": tuning, "part": "whole"} for kernel in kernels}
    for part in ("scores", "selection") if "bounded" in kernels else ():
        found[f"{part} only"] = {"kernel": "bounded", "tuning": tuning, "part": part}
    return found


def prepare(variant: dict, key_format: str = "bf16") -> None:
    """Leaves a pinned variant's autotuners their pinned configuration. Raises ValueError for another tuning."""
    import torch

    from ..kernels.indexer import pinned

    if variant["tuning"] == "pinned":
        major, minor = torch.cuda.get_device_capability()
        pinned.pin(variant["kernel"], major * 10 + minor, key_format)
    elif variant["tuning"] != "live":
        raise ValueError(f"tuning: {variant['tuning']!r}; allowed: live, pinned")


def scores_of(inputs):
    """Scores [B, padded width] fp32 by the bounded path's first kernel: what lies beyond a length is not written."""
    from ..kernels.indexer.launch import run_scores
    from ..kernels.indexer.scores import bounded_scores_kernel

    return run_scores("bounded", bounded_scores_kernel, inputs.args())


def selection_of(scores, inputs):
    """Slots [B, 512] by the bounded path's second kernel."""
    from ..kernels.indexer.launch import run_selection
    from ..kernels.indexer.selection import select_kernel

    return run_selection(select_kernel, scores, inputs.page_table, inputs.lengths, TOPK)


def calls_of(variants: dict[str, dict], inputs: list) -> dict[str, list]:
    """{variant: a call for each input set}. Selections find scores with NaN beyond the lengths."""
    from ..kernels.indexer import select

    found = {}
    for name, variant in variants.items():
        if variant["part"] == "whole":
            found[name] = [partial(select, *one.args(), kernel=variant["kernel"]) for one in inputs]
        elif variant["part"] == "scores":
            found[name] = [partial(scores_of, one) for one in inputs]
        else:
            with fresh_memory_is_nan():
                found[name] = [partial(selection_of, scores_of(one), one) for one in inputs]
    return found


def verify(name: str, part: str, call, inputs, want: list) -> dict:
    """The check of one call in poisoned memory, as records hold it. want: of kernels.indexer.scores_reference.

    A selection alone is held against the scores it was given, exactly: only equal scores may fall either way.
    """
    from ..kernels.indexer import error, reference

    with fresh_memory_is_nan():
        found = call()
    if part == "scores":
        off = scores_error(found, want)
    else:
        if part == "selection":
            given = call.args[0]
            want = [given[row, : len(one)].double() for row, one in enumerate(want)]
        off = error(found, want, inputs.page_table, inputs.lengths)
    output = "scores" if part == "scores" else "out"
    tolerance = 0.0 if part == "selection" else reference.TOLERANCE
    return {"call": name, "output": output, "error": finite(off), "tolerance": tolerance, "ok": off <= tolerance}


def scores_error(found, want: list) -> float:
    """The largest difference from float64 of a row's scores, relative to its largest; NaN where one is not written."""
    import torch

    rows = [(found[row, : len(one)] - one).abs().max() / one.abs().max() for row, one in enumerate(want) if len(one)]
    return float(torch.stack(rows).max()) if rows else 0.0


def scratch_a_row(call, batch: int) -> float:
    """Most bytes of scratch memory that a request takes during a call: what torch was asked for, less the result.

    Not what its allocator sets aside, which rounds up. The call must have run before.
    """
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = call()
    most = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return (most - before - result.nbytes) / batch


def part_costs(part: str, batch: int, keys: int, key_format: str, rates: dict) -> dict:
    """What a kernel alone moves, computes and could take, in place of the whole call's: bytes, flops and the floor.

    keys: of all requests. Of the scores also `read`, the bytes without the 4 a key that are written.
    """
    from ..kernels.indexer.cost import select_cost
    from ..kernels.indexer.formats import KEY_BYTES

    if part == "whole":
        return {}
    whole, slots = select_cost(batch, keys, TOPK, key_bytes=KEY_BYTES[key_format]), batch * 4 * TOPK
    if part == "scores":
        read = whole.bytes - slots
        found = {"read": read, "bytes": read + 4 * keys, "flops": whole.flops}
    else:
        # a score a key, the page number of each slot, the length; the slots
        found = {"bytes": 4 * keys + 2 * slots + 4 * batch, "flops": 0}
    return found | floor_of(found["bytes"], found["flops"], rates)


def read_share(cost: dict, us: float, rates: dict) -> dict:
    """{"read_share": of the bandwidth in `rates`} of the scores alone; {} of what else there is, or without rates."""
    return {"read_share": rate(cost["read"], us) / rates["tb_s"]} if "read" in cost and rates else {}


def chosen(kernel: str) -> str:
    """What a kernel's autotuners have in use here, each after its name."""
    from ..kernels.indexer.pinned import TUNERS
    from .specialise import config_text

    shown = []
    for name, tuner in TUNERS[kernel].items():
        configs = tuner.configs if len(tuner.configs) == 1 else tuner.cache.values()
        shown += [f"{name} {text}" for text in dict.fromkeys(config_text(config) for config in configs)]
    return "; ".join(shown)
