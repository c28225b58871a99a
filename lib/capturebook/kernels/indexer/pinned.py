"""Pinned configurations of the indexer's kernels: one per kernel and architecture."""

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


def pinned_entry(name: str, sm: int) -> dict:
    """The entry of pinned.json: `config` (kwargs of triton.Config) and `source`, how it was chosen.

    name: of a jitted function; sm: 90 for compute capability 9.0. Raises ValueError for one without entries.
    """
    table = json.loads(resources.files(__package__).joinpath("pinned.json").read_text())
    if name not in table:
        raise ValueError(f"kernel: {name!r}; pinned configurations exist for {', '.join(table)}")
    if sm not in pins.LIKE:
        raise ValueError(f"sm: {sm}; pinned configurations exist for {', '.join(map(str, pins.LIKE))}")
    return table[name][str(pins.LIKE[sm])]


def pinned_config(name: str, sm: int) -> triton.Config:
    """The pinned configuration; arguments and errors as `pinned_entry`."""
    return triton.Config(**pinned_entry(name, sm)["config"])


def pin(kernel: str, sm: int) -> None:
    """Leaves the autotuners of "stock" or "bounded" their pinned configuration, for this process."""
    for name, tuner in TUNERS[kernel].items():
        pins.pin(tuner, pinned_config(name, sm))


def tuning_of(kernel: str) -> str:
    """ "live", or the configurations that the kernels were pinned to: see `sparse_mla.pinned.tuning_of`."""
    chosen = [pins.tuning_of(name.removesuffix("_kernel")) for name in TUNERS[kernel]]
    return chosen[0] if len(set(chosen)) == 1 else "; ".join(chosen)
