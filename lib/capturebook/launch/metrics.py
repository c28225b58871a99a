"""A server's /metrics (Prometheus text format), under names that are the same for every server."""

import math
import re
import urllib.error

from .adapters import Adapter
from .ready import fetch

_LABEL = r'[A-Za-z_][A-Za-z0-9_]*="(?:\\.|[^"\\])*"'
_LINE = re.compile(rf"^([A-Za-z_:][A-Za-z0-9_:]*)(\{{(?:{_LABEL},?)*\}})?\s+([-+0-9.eE]+|NaN|[-+]?Inf)(?:\s|$)")
_TWIN = re.compile(r'[{,](?:tp_rank|pp_rank)="(?!0")')
SHARES = ("cache_usage", "in_graph")
"""Ours that are shares: of several engines' the largest counts, never their sum."""


class NoMetrics(RuntimeError):
    """The server has no metrics to give. One line says why."""


def parse(text: str) -> dict[str, list[float]]:
    """{metric: its finite values, one for each set of labels} of Prometheus text.

    Ranks of one model report the same thing each, so of tensor and pipeline ranks only 0 counts.
    """
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and math.isfinite(float(match.group(3))) and not _TWIN.search(match.group(2) or ""):
            found.setdefault(match.group(1), []).append(float(match.group(3)))
    return found


def scrape(adapter: Adapter, base: str, seconds: float = 10.0) -> dict[str, float]:
    """{our name: value} now. Raises NoMetrics when the server has none, or none of those that we know."""
    if not adapter.metrics:
        raise NoMetrics(adapter.no_metrics)
    try:
        all_values = parse(fetch(f"{base}/metrics", None, seconds))
    except urllib.error.HTTPError as exc:
        raise NoMetrics(f"HTTP status {exc.code}: {adapter.no_metrics}") from None
    except OSError as exc:
        raise NoMetrics(f"{type(exc).__name__}: {exc}") from None
    values = {
        name: (max if name in SHARES else sum)(all_values[metric])
        for name, metric in adapter.metrics.items()
        if metric in all_values
    }
    if not values:
        raise NoMetrics(f"none of {len(all_values)} metrics has a name we know; {adapter.no_metrics}")
    return values
