"""Pinned configurations of the indexer's kernels: one per kernel, architecture and, for scores, format of the keys."""

import json
from importlib import resources

import triton

from ..sparse_mla import pinned as pins
from .scores import bounded_scores_kernel, padded_scores_kernel
from .selection import select_kernel

TUNERS = {
    "stock": {"padded_scores_kernel": padded_scores_kernel},
    "bounded": {"bounded_scores_kernel": bounded_scores_kernel, "select_kernel": select_kernel},
}
"""What each `kernel` of `select` launches, by name."""


def pinned_entry(name: str, sm: int, key_format: str = "bf16") -> dict:
    """The entry of pinned.json: `config` (kwargs of triton.Config) and `source`, how it was chosen.

    name: of a jitted function; sm: 90 for compute capability 9.0; key_format: "bf16" or "fp8", whose entry is that of
    bf16 where it has none. Raises ValueError for a kernel or GPU without entries.
    """
    table = json.loads(resources.files(__package__).joinpath("pinned.json").read_text())
    if key_format != "bf16" and str(pins.LIKE.get(sm)) in table.get(f"{name}_{key_format}", ()):
        name = f"{name}_{key_format}"
    if name not in table:
        raise ValueError(f"kernel: {name!r}; pinned configurations exist for {', '.join(table)}")
    if sm not in pins.LIKE:
        raise ValueError(f"sm: {sm}; pinned configurations exist for {', '.join(map(str, pins.LIKE))}")
    return table[name][str(pins.LIKE[sm])]


def pinned_config(name: str, sm: int, key_format: str = "bf16") -> triton.Config:
    """The pinned configuration; arguments and errors as `pinned_entry`."""
    return triton.Config(**pinned_entry(name, sm, key_format)["config"])


def pin(kernel: str, sm: int, key_format: str = "bf16") -> None:
    """Leaves the autotuners of "stock" or "bounded" their pinned configuration, for this process.

    They are right for keys of either format, and fast for those of `key_format`.
    """
    for name, tuner in TUNERS[kernel].items():
        pins.pin(tuner, pinned_config(name, sm, key_format))


def tuning_of(kernel: str) -> str:
    """ "live", or the configurations that the kernels were pinned to: see `sparse_mla.pinned.tuning_of`."""
    chosen = [pins.tuning_of(name.removesuffix("_kernel")) for name in TUNERS[kernel]]
    return chosen[0] if len(set(chosen)) == 1 else "; ".join(chosen)
