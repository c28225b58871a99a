"""GPU time of a captured step by class of work: which part of the step launched each kernel of its replay.

A replay's kernels have lost who launched them. So the same step is run once without a graph, each of its operators in a
named range; its kernels, in order, say which range each belongs to, and the replay's are the same ones in that order.
"""

import bisect
import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

CLASSES = ("attention", "indexer", "moe", "gemm", "routing", "glue")
"""Sparse MLA; scores and selection; routed experts, their sorting and sum; other matmuls; which experts; all else."""

MATMULS = ("gemm", "gemv", "nvjet", "cutlass", "splitk", "xmma", "dot_kernel")
"""Parts of the names of cuBLAS's kernels."""

_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = ("cuda_runtime", "cuda_driver")
_PREFIX, _PART = "class:", "part:"


@contextlib.contextmanager
def ranged(name: str):
    """Kernels that are launched inside belong to this class, whatever they are called."""
    import torch

    with torch.profiler.record_function(_PREFIX + name):
        yield


def labelled(function: Callable, name: str) -> Callable:
    """The function, its kernels in a class."""

    def inner(*args, **kwargs):
        with ranged(name):
            return function(*args, **kwargs)

    return inner


def profile(run: Callable[[], object]) -> list[dict]:
    """What torch's profiler saw of one run, as the events of a Chrome trace; GPU work only where there is a GPU."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as seen:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def parted(events: list[dict]) -> dict[str, list[dict]]:
    """The events of one profile by what was run in `part(name)`, GPU work by the call that launched it."""
    named = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith(_PART)]
    spans = sorted((e["ts"], e["ts"] + e["dur"], e["name"].removeprefix(_PART)) for e in named)
    issued = {e["args"]["correlation"]: e for e in events if e.get("cat") in _LAUNCH and "correlation" in e["args"]}
    found: dict[str, list[dict]] = {name: [] for _, _, name in spans}
    for event in events:
        if "ts" not in event or event.get("name", "").startswith(_PART):
            continue
        began = issued.get(event["args"].get("correlation"), event) if event.get("cat") in _GPU else event
        at = bisect.bisect_right(spans, began["ts"], key=lambda span: span[0]) - 1
        if at >= 0 and began["ts"] <= spans[at][1]:
            found[spans[at][2]].append(event)
    return found


@contextlib.contextmanager
def part(name: str):
    """What is launched inside, and has ended when this ends, is one part of a profile."""
    import torch

    with torch.profiler.record_function(_PART + name):
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def launched(events: list[dict]) -> list[tuple[str, str]]:
    """(name, class) of the GPU work of a plain run, in the order of its launches.

    The innermost range decides; outside all, a matmul by its name is "gemm" and the rest "glue".
    """
    ranges = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith(_PREFIX)]
    issued = {e["args"]["correlation"]: e for e in events if e.get("cat") in _LAUNCH and "correlation" in e["args"]}
    found = []
    for event in _work(events):
        launch = issued[event["args"]["correlation"]]
        around = [r for r in ranges if r["tid"] == launch["tid"] and r["ts"] <= launch["ts"] <= r["ts"] + r["dur"]]
        if around:
            name = min(around, key=lambda r: r["dur"])["name"].removeprefix(_PREFIX)
        else:
            name = "gemm" if is_matmul(event["name"]) else "glue"
        found.append((launch["ts"], event["name"], name))
    return [(kernel, name) for _, kernel, name in sorted(found, key=lambda item: item[0])]


def is_matmul(kernel: str) -> bool:
    return any(part in kernel.lower() for part in MATMULS)


def times(replays: list[list[dict]], order: list[tuple[str, str]]) -> dict:
    """{"us": {class: GPU time of one replay}, "launches": {class: nodes}, "top": the longest kernels, "others":
    [{"kernel", "plain", "class", "launches"}], those that the plain run has under no such name}, means of the replays.

    replays: of the same graph, the events of each; order: what `launched` gave for the same step. The nth kernel of a
    name has the class of the nth of that name there; see `_matched` for the others. A kernel's time begins where all
    before it have ended: one that starts early only waits for them until then.
    """
    us, launches, by_kernel = dict.fromkeys(CLASSES, 0.0), dict.fromkeys(CLASSES, 0.0), {}
    unnamed: Counter[tuple[str, str | None, str]] = Counter()
    each = 1 / len(replays)
    for events in replays:
        work, ended = sorted(_work(events), key=lambda event: event["ts"]), float("-inf")
        groups, others = _matched([event["name"] for event in work], order)
        unnamed.update(others)
        for event, group in zip(work, groups):
            end = event["ts"] + event["dur"]
            spent = max(0.0, end - max(event["ts"], ended)) * each
            ended = max(ended, end)
            us[group] += spent
            launches[group] += each
            by_kernel[event["name"][:80], group] = by_kernel.get((event["name"][:80], group), 0.0) + spent
    top = sorted(by_kernel.items(), key=lambda item: -item[1])[:10]
    return {
        "us": us,
        "launches": launches,
        "top": [{"kernel": kernel, "class": group, "us": spent} for (kernel, group), spent in top],
        "others": [
            {"kernel": kernel[:80], "plain": plain and plain[:80], "class": group, "launches": n * each}
            for (kernel, plain, group), n in unnamed.items()
        ],
    }


def _copies(name: str) -> bool:
    """Whether this is a memset or a copy, which no kernel is under another name."""
    return name.startswith(("Memset", "Memcpy"))


def _matched(names: list[str], order: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str | None, str]]]:
    """(class of each launch of a replay, (its name, the plain run's, class) of those that are not found by name).

    What the plain run has under no such name, and what of it is left: if they are as many, the one is the other in the
    order of launches, under another name. On an H200 the first place of each process had three such launches a layer,
    and three fewer of "moe" than its later places, where all were found by name (which they are was not looked at). If
    they are not as many, a matmul by its name is "gemm", the rest "glue", and the plain run's name is None.
    """
    places: dict[str, list[int]] = {}
    for at, (name, _) in reversed(list(enumerate(order))):
        places.setdefault(name, []).append(at)
    found = [places[name].pop() if places.get(name) else None for name in names]
    left = sorted(at for of in places.values() for at in of)
    strangers = [number for number, at in enumerate(found) if at is None]
    if len(left) == len(strangers) and all(
        _copies(names[n]) == _copies(order[at][0]) for n, at in zip(strangers, left)
    ):
        others = {number: (names[number], *order[at]) for number, at in zip(strangers, left)}
    else:
        others = {n: (names[n], None, "gemm" if is_matmul(names[n]) else "glue") for n in strangers}
    groups = [others[number][2] if at is None else order[at][1] for number, at in enumerate(found)]
    return groups, list(others.values())


def _work(events: list[dict]) -> list[dict]:
    return [event for event in events if event.get("cat") in _GPU]
