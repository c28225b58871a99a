"""What a step's record may hold under `effective`, `graph` and `payload`: readings by name and type.

Names that are not here are kept as they are; one that is here and of another type is a damaged record, which is found
when it is read and not by the rule or the page that would have met it.
"""

import math
from typing import Any

from pydantic import BaseModel, ConfigDict

READ_BACK = ("torch", "triton", "device", "suspect_variables", "threads")
"""Readings that every step leaves in `effective` once it is built and driven, however that ends."""

SHORTEST_US, LONGEST_US = 1e-6, 1e12
"""Bounds of a sample: no time, and no quotient of two of them, leaves what JSON can hold."""


class _Readings(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class Effective(_Readings):
    """The configuration that was in force, and what a probe found about its step."""

    torch: str = ""
    triton: str = ""
    cuda: str | None = None
    device: str = ""
    allocator: str = ""
    twin: str = ""
    recompiles: str = ""
    suspect_variables: dict[str, str] = {}
    opcheck: dict[str, str] = {}
    memory: dict[str, int] = {}
    inductor: dict[str, bool] = {}
    state_reshaped: dict[str, Any] = {}
    threads: list[str] = []
    graph_break_reasons: list[str] = []
    phases: list[Any] = []
    timeline: list[dict[str, str | float | int]] = []
    graph_breaks: int = 0
    unique_graphs: int = 0
    cudagraph_skips: int = 0
    trees_manager: bool = False
    interpret: bool = False
    autotuning_cache: bool = False
    deterministic: bool | None = None
    random: bool | None = None


class Graph(_Readings):
    """What a captured graph holds: kernels and nodes by name, and kernels of an eager run that it lacks."""

    kernels: dict[str, int] = {}
    nodes: dict[str, int] = {}
    parallel: bool | None = None
    missing: list[str] = []


class Payload(_Readings):
    """Of a step or a gain."""

    trivial: bool = False
    frozen_advance_passes: bool | None = None
    needs: str = ""
    baseline: dict[str, Any] = {}


def check_samples(kind: str, samples: dict[str, list[float]]) -> None:
    """Raises ValueError for what is no time in microseconds, and for a gain whose two arms did not take turns."""
    for name, times in samples.items():
        if not times:
            raise ValueError(f"samples.{name} is empty")
        for time in times:
            if not (math.isfinite(time) and SHORTEST_US <= time <= LONGEST_US):
                raise ValueError(
                    f"samples.{name}: {time!r} is no time in us; allowed: {SHORTEST_US:g} to {LONGEST_US:g}"
                )
    if kind == "gain":
        counts = {name: len(samples.get(name, ())) for name in ("fixed", "baseline")}
        if counts["fixed"] != counts["baseline"] or counts["fixed"] < 2:
            raise ValueError(f"samples of a gain are {counts}; allowed: as many of each, at least 2")
