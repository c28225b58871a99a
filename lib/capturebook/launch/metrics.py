"""A server's /metrics (Prometheus text format), under names that are the same for every server."""

import http.client
import math
import re
import urllib.error

from .adapters import Adapter
from .ready import NotYet, fetch

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+([-+0-9.eE]+|NaN|[-+]?Inf)(?:\s|$)")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_SHARES = ("usage", "usage_perc", "is_cuda_graph")
"""Ends of the names of shares: of several, the largest counts, where everything else is summed."""


class NoMetrics(RuntimeError):
    """The server has no metrics to give. One line says why."""


def parse(text: str) -> dict[str, float]:
    """{metric: value} of Prometheus text; a metric with several label sets (engines, data-parallel ranks) is summed,
    a share is its largest, what is not finite is left out.

    sglang's tensor and pipeline ranks may each report the same requests: the first counts. With priorities it reports
    each one beside their sum, whose priority is empty: the sum counts.
    """
    series: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and math.isfinite(value := float(match.group(3))):
            series.setdefault(match.group(1), []).append((dict(_LABEL.findall(match.group(2) or "")), value))
    return {name: _one(name, found) for name, found in series.items() if found}


def _one(name: str, found: list[tuple[dict[str, str], float]]) -> float:
    sums = [pair for pair in found if pair[0].get("priority", "") == ""] or found
    first = [pair for pair in sums if all(pair[0].get(rank, "0") == "0" for rank in ("tp_rank", "pp_rank"))] or sums
    values = [value for _, value in first]
    return max(values) if name.endswith(_SHARES) else sum(values)


def scrape(adapter: Adapter, base: str, seconds: float = 10.0) -> dict[str, float]:
    """{our name: value} now. Raises NoMetrics when the server has none, or none of those that we know."""
    if not adapter.metrics:
        raise NoMetrics(adapter.no_metrics)
    try:
        all_values = parse(fetch(f"{base}/metrics", None, seconds))
    except urllib.error.HTTPError as exc:
        raise NoMetrics(f"HTTP status {exc.code}: {adapter.no_metrics}") from None
    except NotYet as exc:
        raise NoMetrics(str(exc)) from None
    except (OSError, http.client.HTTPException) as exc:
        raise NoMetrics(f"{type(exc).__name__}: {exc}") from None
    values = {name: all_values[metric] for name, metric in adapter.metrics.items() if metric in all_values}
    if not values:
        raise NoMetrics(f"none of {len(all_values)} metrics has a name we know; {adapter.no_metrics}")
    return values
