"""Times of single calls and replays, of a step that has passed."""

import time


def samples(calls, go, count: int) -> list[float]:
    """Microseconds of each `go()` between two events on the capture's stream (host time on a CPU); two go first."""
    import torch

    times = []
    for _ in range(count + 2):
        if not calls.cuda:
            start = time.perf_counter()
            go()
            times.append((time.perf_counter() - start) * 1e6)
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with calls.on_stream():
            start.record()
        go()
        with calls.on_stream():
            end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return times[2:]
