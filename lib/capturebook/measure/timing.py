"""Timing by replay: one CUDA graph holds many calls on inputs that are cold in L2, variants take turns.

Method: the cost of one graph node (about 1 us) is part of a call, that of a launch from Python is not. A call's inputs
come round again only after more bytes than L2 holds were read in between, so rows are read from memory as in a server,
where other layers ran meanwhile.
"""

import statistics
from collections.abc import Callable

COLD_BYTES = 180e6
"""Least bytes that one replay gathers; three times L2 if that is more."""

WARM_SECONDS = 0.05
"""Replays before the first sample: the clock rises under load."""


def cold_sets(bytes_per_call: float, l2_bytes: float, least: int = 8) -> int:
    """How many distinct input sets one replay must go through for every set to be cold when its turn comes."""
    wanted = max(COLD_BYTES, 3 * l2_bytes)
    return max(least, int(-(-wanted // max(1.0, bytes_per_call))))


def l2_bytes(device: int = 0) -> int:
    """Size of L2 as the device says."""
    import torch

    return torch.cuda.get_device_properties(device).L2_cache_size


def capture(calls: list[Callable[[], object]], keep: bool = False):
    """One CUDA graph of all `calls`, in order. Each kind of call must have run once before (compiled and tuned).

    keep: what was captured can still be read (`raw_cuda_graph`).
    """
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def time_variants(variants: dict[str, list[Callable[[], object]]], rounds: int = 15) -> dict[str, list[float]]:
    """Samples in us per call, `rounds` of them for each variant, replays of the variants interleaved.

    `variants` maps a name to its calls, one for each input set.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for calls in variants.values():
            calls[0]()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graphs = {name: capture(calls) for name, calls in variants.items()}
    for graph in graphs.values():
        _warm(graph)
    replayed = interleave(graphs, rounds, _replay_ms)
    return {name: [ms * 1e3 / len(variants[name]) for ms in replayed[name]] for name in variants}


def interleave(things: dict, rounds: int, time_one: Callable[..., float]) -> dict[str, list[float]]:
    """`time_one(thing)` of every thing, `rounds` times each, in the order of the rounds.

    Round by round each has its turn, the first of a round changing, so that drift of clock and temperature meets all
    of them alike.
    """
    samples: dict[str, list[float]] = {name: [] for name in things}
    for turn in range(rounds):
        for name in rotated(list(things), turn):
            samples[name].append(time_one(things[name]))
    return samples


def time_single(
    variants: dict[str, list[Callable[[], object]]], before: dict[str, Callable[[], None]], rounds: int = 15
) -> dict[str, list[float]]:
    """Samples in us of single calls, each a graph of its own, variants interleaved: for host work between the calls.

    `before[name]` runs before each capture and replay; after it, memory larger than the cache is written, so that a
    call finds nothing of its own there. Neither is timed; the gap until a graph's first node starts is.
    """
    import torch

    graphs: dict[str, list] = {name: [] for name in variants}
    for name, calls in variants.items():
        for call in calls:
            before[name]()
            graphs[name].append(capture([call]))
    sweeper = torch.empty(3 * l2_bytes(), dtype=torch.uint8, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(-len(next(iter(graphs.values()))), rounds):  # one round of each graph to warm up
        for name in rotated(list(graphs), turn):
            before[name]()
            sweeper.fill_(turn % 2)
            us = _replay_ms(graphs[name][turn % len(graphs[name])]) * 1e3
            if turn >= 0:
                samples[name].append(us)
    return samples


def rotated(names: list[str], turn: int) -> list[str]:
    """`names` with another one in front each turn."""
    first = turn % len(names)
    return names[first:] + names[:first]


def _warm(graph) -> None:
    spent = 0.0
    while spent < WARM_SECONDS * 1e3:
        spent += _replay_ms(graph)


def _replay_ms(graph) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def spread(samples: list[float]) -> dict[str, float]:
    """{"median_us", "p10_us", "p90_us"} of samples in us; one sample is its own spread."""
    if len(samples) == 1:
        return {"median_us": samples[0], "p10_us": samples[0], "p90_us": samples[0]}
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return {"median_us": statistics.median(samples), "p10_us": tenths[0], "p90_us": tenths[-1]}
