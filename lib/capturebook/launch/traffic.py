"""Real requests at a given concurrency: tokens a second, time to first token, time per output token."""

import http.client
import json
import random
import statistics
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .adapters import Adapter


@dataclass(frozen=True)
class Request:
    """One request's times in seconds (`ttft` to the first text, `total` to the end) and its tokens; or its error."""

    ttft: float = 0.0
    total: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    error: str = ""

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None when there was only one."""
        return (self.total - self.ttft) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Size:
    """What each request asks for, how many seconds it may take, and the bearer's token that it shows, if any."""

    prompt_words: int
    output_tokens: int
    seconds: float
    key: str = field(default="", repr=False)


def prompt(words: int, seed: int) -> str:
    """Words that differ with the seed, so that no request is served from another's prefix cache."""
    rng = random.Random(seed)
    return " ".join(str(rng.randrange(1000)) for _ in range(words))


def one(adapter: Adapter, base: str, model: str, text: str, size: Size) -> Request:
    """One streamed completion. What goes wrong is in the request's `error`."""
    where = urlsplit(base)
    body = {"model": model, "prompt": text, "max_tokens": size.output_tokens, "stream": True, **adapter.load_options}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {size.key}"} if size.key else {})
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=size.seconds)
    began = time.perf_counter()
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            return Request(error=f"HTTP status {answer.status}: {answer.read(300).decode('utf-8', 'replace')}")
        return _read(answer, began)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return Request(error=f"{type(exc).__name__}: {exc}")
    except (TypeError, AttributeError) as exc:
        return Request(error=f"an event of another form than OpenAI's: {exc}")
    finally:
        connection.close()


def _read(answer, began: float) -> Request:
    first, pieces, usage, done = 0.0, 0, {}, False
    for line in answer:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            break
        event = json.loads(data)
        if "error" in event:
            return Request(error=str(event["error"])[:300])
        if any(choice.get("text") for choice in event.get("choices", ())):
            pieces += 1
            first = first or time.perf_counter() - began
        done = done or any(choice.get("finish_reason") for choice in event.get("choices", ()))
        usage = event.get("usage") or usage
    total = time.perf_counter() - began
    if not done:
        return Request(error="the stream ended without a finish")
    if not pieces:
        return Request(error="the stream held no text")
    tokens, asked = usage.get("completion_tokens") or pieces, usage.get("prompt_tokens") or 0
    return Request(first, total, int(tokens), int(asked))


def at_concurrency(
    adapter: Adapter, base: str, model: str, concurrency: int, requests: int, size: Size, seed: int
) -> tuple[dict, list[Request]]:
    """`requests` requests, `concurrency` at a time. Returns a row (times in ms) and the single requests."""
    todo, done, lock = list(range(requests)), [], threading.Lock()

    def client():
        while True:
            with lock:
                if not todo or any(request.error for request in done):
                    return
                number = todo.pop()
            text = prompt(size.prompt_words, seed * 100003 + number)
            request = one(adapter, base, model, text, size)
            with lock:
                done.append(request)

    clients = [threading.Thread(target=client, daemon=True) for _ in range(concurrency)]
    began = time.perf_counter()
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    wall = time.perf_counter() - began
    row = {"concurrency": concurrency, "requests": len(done), "seconds": round(wall, 3)}
    good = [request for request in done if not request.error]
    if len(good) == len(done):
        row["tokens"] = sum(request.tokens for request in good)
        row["prompt_tokens"] = sum(request.prompt_tokens for request in good)
        row["tokens_per_s"] = round(row["tokens"] / wall, 2)
        row |= percentiles("ttft_ms", [request.ttft for request in good])
        row |= percentiles("tpot_ms", [request.tpot for request in good if request.tpot is not None])
    return row, done


def percentiles(name: str, seconds: list[float]) -> dict[str, float | None]:
    """{name_p50, _p90, _p99} in ms: the smallest sample that so many of all do not exceed; None without samples."""
    ordered = sorted(seconds)
    return {
        f"{name}_p{share}": round(ordered[-(-share * len(ordered) // 100) - 1] * 1e3, 3) if ordered else None
        for share in (50, 90, 99)
    } | {f"{name}_mean": round(statistics.fmean(ordered) * 1e3, 3) if ordered else None}
