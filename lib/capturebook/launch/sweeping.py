"""A bounded sweep of real requests against a launch that is ready: one row for each concurrency."""

import http.client
from collections.abc import Callable

from ..records import Record
from . import metrics, traffic
from .adapters import ADAPTERS
from .control import connected
from .forward import reachable
from .outcome import Outcome
from .ready import NotYet
from .stages import NotHeld
from .store import Entry, LaunchError

MOST = 4096
"""Requests of one sweep."""


def sweep(
    name: str,
    concurrency: tuple[int, ...] = (1, 2, 4),
    requests: int = 16,
    prompt_words: int = 32,
    output_tokens: int = 32,
    seconds: float = 60.0,
    on_event: Callable[[str], None] = print,
) -> Record:
    """Ask a ready launch for `requests` completions at each concurrency, after as many unrecorded ones as the largest
    concurrency. Returns its record: payload "sweep" has the rows (tokens/s, TTFT and TPOT percentiles in ms),
    "metrics" what the server counted meanwhile, or why there is nothing; samples are in microseconds.

    `seconds` is how long one request may take. Raises LaunchError for an unknown launch, one without an adapter, and
    sizes out of range. A request that fails ends the sweep: status `fail`, no rows of that concurrency.
    """
    entry = Entry.open(name)
    resolved = entry.info["resolved"] or {}
    adapter = ADAPTERS.get(resolved.get("adapter"))
    if adapter is None:
        raise LaunchError(f"sweep: {entry.id} has no adapter; allowed: a launch with adapter: {', '.join(ADAPTERS)}")
    sizes = {"concurrency": min(concurrency, default=0), "requests": requests, "output_tokens": output_tokens}
    for what, value in sizes.items():
        if value < 1:
            raise LaunchError(f"sweep: {what}: given {value}; allowed: 1 or more")
    if requests * len(concurrency) + max(concurrency) > MOST:
        raise LaunchError(
            f"sweep: given {requests} requests at {len(concurrency)} concurrencies; allowed: {MOST} in all"
        )

    def act(following, stages) -> Outcome:
        rows, samples = [], {}
        with stages.stage("ready") as evidence:
            following.must_run()
            evidence["still"] = "running"
        base = f"http://127.0.0.1:{resolved['port']}"
        with reachable(base, entry.info["host"]) as url:
            key = following.key()
            model = resolved["model"] or _served(adapter, url, key)
            size = traffic.Size(prompt_words, output_tokens, seconds, key)
            warm, done = traffic.at_concurrency(adapter, url, model, max(concurrency), max(concurrency), size, seed=0)
            _all_good(done, warm)
            before = _metrics(adapter, url)
            for seed, many in enumerate(concurrency, 1):
                row, done = traffic.at_concurrency(adapter, url, model, many, requests, size, seed=seed)
                _all_good(done, row)
                rows.append(row)
                stages.say(f"concurrency {many}: {row['tokens_per_s']} tok/s, TTFT p50 {row['ttft_ms_p50']} ms")
                samples[f"ttft concurrency={many}"] = [round(request.ttft * 1e6, 1) for request in done]
                samples[f"tpot concurrency={many}"] = [round(r.tpot * 1e6, 1) for r in done if r.tpot is not None]
            after = _metrics(adapter, url)
        payload = {"sweep": rows, "metrics": _difference(before, after), "model": model}
        return Outcome("pass", f"{len(rows)} concurrencies", payload=payload, samples=samples)

    return connected(entry, "load", act, on_event, stop_on_failure=False)


def _all_good(done: list[traffic.Request], row: dict) -> None:
    bad = [request.error for request in done if request.error]
    if bad:
        at = row["concurrency"]
        raise NotHeld(f"{len(bad)} of {len(done)} requests failed at concurrency {at}: {bad[0]}", status="fail")


def _served(adapter, url: str, key: str) -> str:
    try:
        return adapter.served(url, key)
    except (NotYet, OSError, http.client.HTTPException) as exc:
        raise NotHeld(f"which model it serves is not known: {exc}", status="fail") from None


def _metrics(adapter, url: str) -> dict | str:
    try:
        return metrics.scrape(adapter, url)
    except metrics.NoMetrics as exc:
        return str(exc)


def _difference(before: dict | str, after: dict | str) -> dict:
    """Counters as their growth, the rest as it is now; {"none": why} without metrics."""
    if isinstance(before, str) or isinstance(after, str):
        return {"none": before if isinstance(before, str) else after}
    grows = ("generated_tokens", "prompt_tokens", "ttft_sum_s", "ttft_count")
    return {name: value - before.get(name, 0.0) if name in grows else value for name, value in after.items()}
