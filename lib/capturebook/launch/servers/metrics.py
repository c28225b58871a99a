"""A server's /metrics: Prometheus text, read under the server's own names."""

import re
import urllib.error
from dataclasses import dataclass

from ..adapters import Adapter
from ..ready import fetch

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class NoMetrics(RuntimeError):
    """The server has no metrics for us. One line: which, and what to do."""


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


def parse(text: str) -> list[Sample]:
    """All samples of an exposition (text format 0.0.4). Raises ValueError for a line that is none."""
    samples = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.match(line.strip())
        if not found:
            raise ValueError(f"no line of Prometheus text: {line[:120]!r}")
        samples.append(Sample(found["name"], _labels(found["labels"] or ""), float(found["value"])))
    return samples


def _labels(text: str) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if not found:
            raise ValueError(f"no labels of Prometheus text: {text[:120]!r}")
        labels[found[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPED[escape[0]], found[2])
        at = found.end()
    return labels


def value(samples: list[Sample], name: str) -> float | None:
    """One number for a name: the sum over engines and data-parallel ranks, None when it is not there.

    sglang's tensor and pipeline ranks each report the same requests, so their first alone counts; with priorities it
    reports each beside their sum, whose priority is empty. A share (usage, in a graph or not) is the largest.
    """
    mine = [s for s in samples if s.name == name]
    mine = [s for s in mine if all(s.labels.get(rank, "0") in ("", "0") for rank in ("tp_rank", "pp_rank"))]
    if any(s.labels.get("priority") for s in mine):
        mine = [s for s in mine if not s.labels.get("priority")] or mine
    values = [s.value for s in mine]
    if not values:
        return None
    share = name.endswith(("usage", "usage_perc", "is_cuda_graph"))
    return max(values) if share else sum(values)


def scrape(base: str, adapter: Adapter, seconds: float = 10.0) -> dict[str, float | None]:
    """Our names (running, generated_tokens, ...) -> numbers now; None for one that the server does not report.

    Raises NoMetrics where the server has none, OSError when it cannot be asked.
    """
    if not adapter.metrics:
        raise NoMetrics(adapter.no_metrics)
    try:
        samples = parse(fetch(f"{base}/metrics", None, seconds))
    except urllib.error.HTTPError as exc:
        raise NoMetrics(f"/metrics answers {exc.code}: {adapter.no_metrics}") from None
    numbers = {ours: value(samples, theirs) for ours, theirs in adapter.metrics.items()}
    if all(number is None for number in numbers.values()):
        raise NoMetrics(f"/metrics holds none of {adapter.name}'s names: is it another server?")
    return numbers
