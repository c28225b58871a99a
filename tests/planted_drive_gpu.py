"""Steps for the GPU tests of the driver: own protocols, and what only a capture shows. Each is a build function."""

import random
import threading

import torch

from capturebook.subjects import Step


def draw(seed: int) -> tuple:
    return (torch.randn(4096, generator=torch.Generator().manual_seed(seed)).cuda(),)


def full(value: float) -> torch.Tensor:
    return torch.full((4096,), float(value), device="cuda")


def driven(drive, fn=lambda x: x * 2, **more) -> Step:
    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2, drive=drive, **more)


def right_protocol() -> Step:
    """Warm-up, a capture, and two replays with the input written in place."""

    def drive(h):
        x = full(1)
        with h.phase("warmup"):
            h.check(h.fn(x), full(2))
        with h.capture():
            out = h.fn(x)
        for value in (3, 4):
            x.fill_(value)
            h.replay()
            h.check(out, full(2 * value))

    return driven(drive)


def rebinds_its_input() -> Step:
    def drive(h):
        x = full(1)
        with h.phase("warmup"):
            h.fn(x)
        with h.capture():
            out = h.fn(x)
        next_x = full(5)
        h.replay()
        h.check(out, next_x * 2)
        del x

    return driven(drive)


def frees_its_input() -> Step:
    def drive(h):
        x = full(1)
        h.fn(x)
        with h.capture():
            out = h.fn(x)
        del x
        h.replay()
        h.check(out, full(2))

    return driven(drive)


def reads_before_it_replays() -> Step:
    def drive(h):
        x = full(1)
        h.fn(x)
        with h.capture():
            out = h.fn(x)
        h.check(out, full(2))

    return driven(drive)


def own_pool_and_graph() -> Step:
    """Two graphs of one pool, the second captured into a graph of the step's own; h.replay() takes the last."""

    def drive(h):
        x, pool = full(1), torch.cuda.graph_pool_handle()
        h.fn(x)
        with h.capture(pool=pool) as first:
            a = h.fn(x)
        h.replay()
        h.check(a, full(2))
        with h.capture(pool=pool, graph=torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
            b = h.fn(x + 1)
        h.replay()
        h.check(b, full(4))
        first.replay()
        h.check(a, full(2))

    return driven(drive)


def announced_capture() -> Step:
    """A capture that the step makes by torch alone."""

    def drive(h):
        x, graph = full(1), torch.cuda.CUDAGraph()
        h.fn(x)
        h.before_capture(graph)
        with torch.cuda.graph(graph):
            out = h.fn(x)
        x.fill_(6)
        h.replay()
        h.check(out, full(12))

    return driven(drive)


def registers_its_generator() -> Step:
    generator = torch.Generator("cuda")

    def fn(x):
        return x * 2 + torch.rand(4096, device="cuda", generator=generator)

    def drive(h):
        x = full(1)
        h.fn(x)
        h.before_capture(lambda graph: graph.register_generator_state(generator))
        with h.capture():
            out = h.fn(x)
        h.replay()
        first = out.clone()
        h.replay()
        h.check((out != first).any(), True)
        h.check((out >= 2).all() and (out <= 3).all(), True)

    return driven(drive, fn)


def fails_in_its_capture() -> Step:
    def drive(h):
        x = full(1)
        with h.phase("warmup"):
            x.sum().item()
        with h.capture():
            x.sum().item()

    return driven(drive)


def fails_in_a_capture_of_its_own() -> Step:
    def drive(h):
        x = full(1)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()

    return driven(drive)


def fails_in_its_warmup() -> Step:
    def drive(h):
        with h.phase("prime the events"):
            raise ValueError("no events")

    return driven(drive)


def reads_pinned_memory() -> Step:
    """Its input is pinned host memory, copied to the device by every call and replay."""
    make = lambda seed: (torch.randn(4096, generator=torch.Generator().manual_seed(seed)).pin_memory(),)  # noqa: E731
    return Step(
        fn=lambda x: x.to("cuda", non_blocking=True) * 2, make_inputs=make, reference=lambda x: x.cuda().double() * 2
    )


def drops_its_pinned_source() -> Step:
    """advance() makes a pinned table anew and drops the one before, which the graph still copies from."""
    made = []

    def advance(i):
        made[:] = [torch.full((4096,), 2.0).pin_memory()]

    return Step(
        fn=lambda x: x * made[0].to("cuda", non_blocking=True),
        make_inputs=draw,
        advance=advance,
        reference=lambda x: x.double() * 2,
    )


def grows_its_cache() -> Step:
    now = {"cache": torch.zeros(1, 4096, device="cuda")}

    def fn(x):
        now["cache"] = torch.cat([now["cache"], x[None]])
        return now["cache"].sum(0)

    return Step(
        fn=fn,
        make_inputs=draw,
        state=lambda: dict(now),
        reference=lambda x: now["cache"].double().sum(0) + x.double(),
        tolerance=1e-4,
    )


def returns_a_row_of_a_table() -> Step:
    """An output that no kernel writes: part of a table which must not be filled with NaN."""
    table = torch.randn(8, 4096, generator=torch.Generator().manual_seed(3)).cuda()
    return Step(fn=lambda x: (x * table[1], table[1]), make_inputs=draw, reference=lambda x: (x * table[1], table[1]))


class _Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4096))

    def forward(self, x):
        self.cache.mul_(0.5).add_(x)
        return {"y": self.cache * 2, "parts": (x + 1, self.cache.sum())}


def module_with_a_cache() -> Step:
    return Step(fn=_Cache().cuda(), make_inputs=draw, tolerance=1e-4)


def random_numbers() -> Step:
    return Step(fn=lambda x: x + torch.rand(4096, device="cuda"), make_inputs=draw)


def random_number_of_the_host() -> Step:
    random.seed(5)
    return Step(fn=lambda x: x + random.random(), make_inputs=draw)


def nothing_to_capture() -> Step:
    return Step(fn=lambda x: x, make_inputs=draw, reference=lambda x: x)


def captures_itself() -> Step:
    def fn(x):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
        graph.replay()
        return y.clone()

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x * 2)


def synchronises() -> Step:
    def fn(x):
        y = x * 2
        torch.cuda.synchronize()
        return y

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x * 2)


def leaves_the_capture_by_set_stream() -> Step:
    """Work on a side stream that never joined, made current without a context."""
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        torch.cuda.set_stream(side)
        try:
            y = torch.empty(64 << 20, device="cuda")
        finally:
            torch.cuda.set_stream(main)
        return x * 2 + y[:4096].zero_()

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x * 2)


def beside_a_busy_thread() -> Step:
    """A thread of the subject's asks an event how it is, and the device for memory past torch's allocator cache."""
    stop, event = threading.Event(), torch.cuda.Event()
    event.record()

    def work():
        while not stop.is_set():
            try:
                event.query()
                torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
                torch.cuda.empty_cache()
            except RuntimeError as error:
                print(str(error).partition("\n")[0])
            stop.wait(0.01)

    thread = threading.Thread(target=work, name="subject-poller", daemon=True)
    thread.start()

    def close():
        stop.set()
        thread.join()

    return Step(fn=lambda x: x * 2, make_inputs=draw, reference=lambda x: x.double() * 2, close=close)


def library_from_the_third_call_on() -> Step:
    """cuBLAS is first used by call number 2, which is the captured one after two warm-ups."""
    weight = torch.eye(64, device="cuda")
    now = {"i": 0}

    def fn(x):
        return (x.view(64, 64) @ weight).view(-1) if now["i"] >= 2 else x * 1

    return Step(fn=fn, make_inputs=draw, advance=lambda i: now.update(i=i), reference=lambda x: x.double())


def compiled_anew_each_time() -> Step:
    now = {"word": ""}

    def fn(x):
        return x * len(now["word"])

    def advance(i):
        now["word"] = "x" if i == 0 else "xx" if i == 1 else "xxx"

    return Step(fn=fn, make_inputs=draw, advance=advance, reference=lambda x: x * len(now["word"]))
