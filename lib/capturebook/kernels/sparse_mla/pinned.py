"""Pinned configurations: one per kernel, architecture and size, and the switch that makes an autotuner use just one."""

import functools
import hashlib
import json
from importlib import resources

import triton

from .launch import constants_of

# GPUs that have no entry of their own take that of the listed one with their matrix unit and no more shared memory.
LIKE = {80: 80, 86: 120, 87: 80, 89: 120, 90: 90, 100: 100, 103: 100, 120: 120, 121: 120}

_tuning: dict[str, str] = {}
_entries: dict[str, int] = {}


def pinned_entry(kernel: str, sm: int, heads: int, batch: int, cache: str = "bf16") -> dict:
    """The entry of pinned.json: `config` (kwargs of triton.Config) and `source`, how it was chosen.

    One that was timed has `timed` besides (see measure.tune), and `entries` of the lists a split where that is not
    `split_count`'s rule.

    An entry is for `max_heads` heads, and for fewer that have none of their own; the widest serve more heads too. Among
    entries for the same heads, one serves up to `max_batch` requests, the last of them any number. How wide the lists
    are has no part: an entry is tuned on those of the model that has such heads, see measure.tune.

    kernel: "mma", "simt" or, on sm_90 alone, "wgmma", the Gluon kernels in tiles of 64 heads; sm: 90 for compute
    capability 9.0; cache: the format it reads, one of formats.CACHES.
    Raises ValueError for a kernel or GPU without entries.
    """
    kernel = entry_name(kernel, cache)
    table = json.loads(_text())
    if kernel not in table:
        raise ValueError(f"kernel: {kernel!r}; pinned configurations exist for {', '.join(table)}")
    if sm not in LIKE:
        raise ValueError(f"sm: {sm}; pinned configurations exist for {', '.join(map(str, LIKE))}")
    entries = table[kernel].get(str(sm)) or table[kernel].get(str(LIKE[sm]), [])
    widest = max((entry["max_heads"] for entry in entries), default=0)
    for entry in entries:
        if min(heads, widest) <= entry["max_heads"] and batch <= entry.get("max_batch", batch):
            return entry
    raise ValueError(f"pinned.json: no entry of {kernel} on sm_{sm} covers heads={heads}, batch={batch}")


@functools.cache
def _text() -> str:
    return resources.files(__package__).joinpath("pinned.json").read_text()


@functools.cache
def _launch(sm: int, heads: int, batch: int, cache: str) -> dict:
    entry = pinned_entry("mma", sm, heads, batch, cache)
    config = triton.Config(**entry["config"]).all_kwargs()
    return constants_of("mma", cache, sm) | {"entries": entry.get("entries", 0)} | config


def pinned_launch(sm: int, q, cache: str) -> dict:
    """Keywords of `launch.run` for the "mma" kernel without its autotuner: constants, pinned configuration, entries."""
    return dict(_launch(sm, int(q.shape[1]), int(q.shape[0]), cache))


def entry_name(kernel: str, cache: str) -> str:
    """What a kernel for a cache format is called: "mma", or "mma_fp8"."""
    return kernel if cache == "bf16" else f"{kernel}_{cache}"


def pinned_config(kernel: str, sm: int, heads: int, batch: int, cache: str = "bf16") -> triton.Config:
    """The pinned configuration; arguments and errors as `pinned_entry`."""
    return triton.Config(**pinned_entry(kernel, sm, heads, batch, cache)["config"])


def pin(autotuner, config: triton.Config) -> None:
    """Leaves an autotuner one configuration, for this process: it then launches without tuning.

    Works for any triton.autotune'd kernel. Those of `decode` are also recompiled by torch.compile (see `tuning_of`).
    """
    autotuner.configs = [config]
    autotuner.cache.clear()
    _tuning[autotuner.base_fn.__name__] = str(config)
    _entries.pop(autotuner.base_fn.__name__, None)


def pin_entry(autotuner, entry: dict) -> None:
    """As `pin`, with an entry of pinned.json, which may say besides how many entries of the lists a split takes."""
    pin(autotuner, triton.Config(**entry["config"]))
    if "entries" in entry:
        name = autotuner.base_fn.__name__
        _entries[name] = entry["entries"]
        _tuning[name] += f", entries: {entry['entries']}"


def pinned_entries(kernel: str, cache: str = "bf16") -> int:
    """Entries of the lists that a split takes where a kernel was pinned to a number; 0: `split_count`'s rule."""
    return _entries.get(f"{entry_name(kernel, cache)}_kernel", 0)


def tuning_of(kernel: str, cache: str = "bf16") -> str:
    """ "live", or the configuration that a kernel was pinned to; for "auto" the digest of the table that it reads.

    `decode` hands it to its operator: the key of AOTAutograd's cache holds an operator's arguments and the source of
    its kernels but not their configurations, so pinned and live runs with one cache folder would share compiled code.
    """
    if kernel == "auto":
        return DIGEST
    return _tuning.get(f"{entry_name(kernel, cache)}_kernel", "live")


DIGEST = hashlib.sha256(_text().encode()).hexdigest()[:16]
