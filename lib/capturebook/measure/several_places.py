"""Several places of a sweep in one process, one after the other, and what the record makes of them all."""

import gc
from collections.abc import Callable

from .gpu_processes import foreign_processes, refusal
from .rows import place_name


def in_turn(places: list[dict], measure: Callable[[dict], dict], found: dict[str, dict]) -> None:
    """Put what `measure` tells of each place into `found`, by name; one that runs out of GPU memory is skipped."""
    import torch

    for place in places:
        try:
            seen = measure(place)
        except torch.OutOfMemoryError as error:
            seen = {"status": "skipped", "reason": f"does not fit: {str(error).partition('. ')[0]}"}
        found[place_name(place)] = seen
        gc.collect()
        torch.cuda.empty_cache()


def outcome(found: dict[str, dict], checks: list[dict], samples: dict) -> dict:
    """The record's fields: `pass` if a place has samples, else what the first one is; `not_run` on a shared GPU."""
    shared = foreign_processes()
    if shared:
        return {**refusal(shared), "checks": checks}
    if not samples:
        first = next(iter(found.values()))
        return {"status": first["status"], "reason": first["reason"], "checks": checks}
    return {"status": "pass", "checks": checks, "samples": samples}
