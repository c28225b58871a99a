"""A server's /metrics (Prometheus text format), under names that are the same for every server."""

import math
import re
import urllib.error

from .adapters import Adapter
from .ready import fetch

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+([-+0-9.eE]+|NaN|[-+]?Inf)\b")


class NoMetrics(RuntimeError):
    """The server has no metrics to give. One line says why."""


def parse(text: str) -> dict[str, float]:
    """{metric: value} of Prometheus text; a metric with several label sets is summed, what is not finite left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and math.isfinite(float(match.group(2))):
            found[match.group(1)] = found.get(match.group(1), 0.0) + float(match.group(2))
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
    values = {name: all_values[metric] for name, metric in adapter.metrics.items() if metric in all_values}
    if not values:
        raise NoMetrics(f"none of {len(all_values)} metrics has a name we know; {adapter.no_metrics}")
    return values
