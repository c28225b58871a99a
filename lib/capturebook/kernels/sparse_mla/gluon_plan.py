"""How a call of the Gluon kernels is launched, from shapes alone: kernel, splits, configuration.

What was chosen among others that compile stands in pinned.json, with where it comes from. Splits are a rule, as
`launch.split_count`'s; times of a few others are in gluon_columns.py.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from .combine import UNIT
from .formats import format_of
from .gluon_bf16 import gluon_bf16_kernel
from .gluon_columns import ENTRIES, N, gluon_columns_kernel
from .gluon_fp8 import gluon_fp8_kernel
from .gluon_tiles import TILE
from .launch import HEAD_DIM, MAX_SPLITS, main_arguments, targets
from .paths import by_columns
from .pinned import pinned_config

WGMMA_KERNELS = {"bf16": gluon_bf16_kernel, "fp8": gluon_fp8_kernel}
"""Warp-specialised, 64 heads a program; by cache format."""

WGMMA_CONFIGS = {cache: pinned_config("wgmma", 90, heads=64, batch=1, cache=cache) for cache in WGMMA_KERNELS}
"""Theirs, one each for all heads and batches: warps of the producer, registers for the consumer's 8."""

COLUMNS_CONFIG = triton.Config({}, num_warps=4, num_stages=3)
"""No tuning: layouts fix the 4 warps, as they do the tiles' sizes N and TILE. num_stages: Triton's default, unused."""

CTAS = 132
"""CTAs that a call is split into where a batch has fewer: an H200 has 132 SMs."""


@dataclass(frozen=True)
class Plan:
    """`kernel[grid](**arguments(...), **config.all_kwargs())`, over `splits` of the lists; block_h: heads a program."""

    kernel: Any
    block_h: int
    grid: tuple[int, int, int]
    splits: int
    config: triton.Config

    def results(self, q: Tensor) -> tuple[Tensor, ...]:
        """Fresh (out, lse) of the kernel, or (out, lse, units) of one that splits lists in tiles of 64 heads.

        With one split the results of `decode`, units none; else parts [B, splits, H, 512], fp32 or, with units
        [B, splits, H, 8] fp32, fp16 in them.
        """
        if self.block_h == 16:
            return targets(q, self.splits)
        out, lse = targets(q, self.splits, part_dtype=torch.float16)
        return out, lse, lse.new_empty((*lse.shape, HEAD_DIM // UNIT.value) if self.splits > 1 else 0)

    def arguments(self, tensors: tuple[Tensor, ...], results: tuple[Tensor, ...], scale: float) -> dict:
        """Arguments of the kernel by name, without its configuration. results: what `results` gives."""
        out, lse, *units = results
        found = main_arguments(tensors, out, lse, scale, self.splits == 1) | {"splits": self.splits, "d": HEAD_DIM}
        if units:
            found["units"] = units[0]
        if format_of(tensors[1]) == "bf16":
            found |= {"WINDOW_PAGE": 0, "EXTRA_PAGE": 0}
        return {name: value for name, value in found.items() if name in self.kernel.arg_names}


def plan(batch: int, heads: int, window_width: int, extra_width: int, cache: str) -> Plan:
    """What `decode` launches with kernel "gluon" on lists of these widths; heads: a multiple of 64."""
    if by_columns(batch, heads, window_width + extra_width):
        tiles = -(-window_width // N.value) - (-extra_width // N.value)
        least = -(-tiles // (ENTRIES.value // N.value))
        splits = max(least, min(CTAS // (batch * heads // 16), -(-tiles // 2)), 1)
        return Plan(gluon_columns_kernel, 16, (heads // 16, splits, batch), splits, COLUMNS_CONFIG)
    splits = wgmma_splits(batch, heads, window_width, extra_width)
    return Plan(WGMMA_KERNELS[cache], 64, (splits, heads // 64, batch), splits, WGMMA_CONFIGS[cache])


def wgmma_splits(batch: int, heads: int, window_width: int, extra_width: int) -> int:
    """Splits of the joint list: as many as keep CTAS CTAs, of which one fits on an SM, each with two tiles or more.

    Fewer where these would do: of 18 tiles 8 splits are 6 of three tiles, and two of none.
    """
    tiles = -(-window_width // TILE.value) - (-extra_width // TILE.value)
    splits = max(1, min(CTAS // (batch * (heads // 64)), -(-tiles // 2), MAX_SPLITS))
    return max(1, -(-tiles // max(1, -(-tiles // splits))))
