"""K3: the step's streams and events reach outside the capture."""

import ctypes

import torch

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step


def step(fn, reference=lambda x: x.double() * 5, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=reference, tolerance=1e-5, **more)


def forked(fork, join) -> Step:
    """x * 2 on a side stream beside x * 3 on the main one; `fork` and `join` get (main, side)."""
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        fork(main, side)
        with torch.cuda.stream(side):
            a = x * 2
        b = x * 3
        join(main, side)
        return a + b

    return step(fn)


def fork_and_join_fixed() -> Step:
    """Forked from the capturing stream, and joined to it."""
    return forked(lambda main, side: side.wait_stream(main), lambda main, side: main.wait_stream(side))


def forked_from_default() -> Step:
    """The side stream waits on the default stream, so it never joins the capture; its allocation is refused."""
    return forked(
        lambda main, side: side.wait_stream(torch.cuda.default_stream()), lambda main, side: main.wait_stream(side)
    )


def waits_on_idle_side() -> Step:
    """The join waits on a side stream that was never forked: its last event lies outside the capture."""
    side = torch.cuda.Stream()

    def fn(x):
        torch.cuda.current_stream().wait_stream(side)
        return x * 5

    return step(fn)


def waits_on_default() -> Step:
    """A habit from eager code: wait for the default stream, whose work is not in this capture."""

    def fn(x):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        return x * 5

    return step(fn)


def waits_fixed() -> Step:
    """What the step needs of other streams, its caller waits for before the capture."""
    return step(lambda x: x * 5)


def never_joined() -> Step:
    """Work was forked to a side stream and the capture ended without it."""
    side, kept = torch.cuda.Stream(), torch.empty(4096, device=DEVICE)

    def fn(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mul(x, 3, out=kept)
        return x * 5

    return step(fn)


def never_joined_fixed() -> Step:
    """The capturing stream waits for the side stream before the step ends."""
    side, kept = torch.cuda.Stream(), torch.empty(4096, device=DEVICE)

    def fn(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mul(x, 3, out=kept)
        torch.cuda.current_stream().wait_stream(side)
        return x * 5

    return step(fn)


def prefetched(external: bool) -> Step:
    side, loaded = torch.cuda.Stream(), torch.cuda.Event(external=external)
    weights, host = torch.empty(4096, device=DEVICE), torch.ones(4096).pin_memory()

    def advance(i: int) -> None:
        host.fill_(i + 1)
        with torch.cuda.stream(side):
            weights.copy_(host, non_blocking=True)
            loaded.record()

    def fn(x):
        torch.cuda.current_stream().wait_event(loaded)
        return x * weights

    return step(fn, lambda x: x.double() * weights, advance=advance)


def prefetch() -> Step:
    """The caller copies weights ahead on a side stream and records an event; the captured step waits on it."""
    return prefetched(external=False)


def prefetch_fixed() -> Step:
    """An external event becomes a node of the graph: each replay waits for its latest recording."""
    return prefetched(external=True)


def queries_event() -> Step:
    """An event recorded in a capture has no state to ask for: it stands for a place in the graph."""

    def fn(x):
        done = torch.cuda.Event()
        y = x * 2
        done.record()
        while not done.query():
            pass
        return y + x * 3

    return step(fn)


def queries_event_fixed() -> Step:
    """The stream orders the work by itself: nobody has to ask whether it is done."""

    def fn(x):
        y = x * 2
        return y + x * 3

    return step(fn)


def captures_itself() -> Step:
    """A library that captures its own graph at every call, inside the caller's capture."""

    def fn(x):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 5
        graph.replay()
        return y.clone()

    return step(fn)


def captures_itself_fixed() -> Step:
    """Where a capture is open already, the library's work becomes a part of it."""

    def fn(x):
        if torch.cuda.is_current_stream_capturing():
            return x * 5
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 5
        graph.replay()
        return y.clone()

    return step(fn)


def busy(x):
    """Enough work on the current stream that another stream's small kernel has ended before what follows."""
    for _ in range(16):
        x = torch.sin(x)
    return x


def default_stream_library() -> Step:
    """A library that launches on the default stream: the kernel runs once, at capture, and is in no graph."""
    kept = torch.empty(4096, device=DEVICE)

    def fn(x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.mul(x, 2, out=kept)
        return busy(x) * 0 + kept + x * 3

    return step(fn)


def unforked_side() -> Step:
    """Side work that is neither forked nor joined: it runs once, at capture, and replays reuse its result."""
    side, kept = torch.cuda.Stream(), torch.empty(4096, device=DEVICE)

    def fn(x):
        with torch.cuda.stream(side):
            torch.mul(x, 2, out=kept)
        return busy(x) * 0 + kept + x * 3

    return step(fn)


def current_stream_fixed() -> Step:
    """The work goes to the current stream, as the caller expects."""
    kept = torch.empty(4096, device=DEVICE)

    def fn(x):
        torch.mul(x, 2, out=kept)
        return busy(x) * 0 + kept + x * 3

    return step(fn)


def raw_copy() -> Step:
    """An extension copies by the driver's own call on the legacy stream: success is reported, no node is made."""
    kept = torch.empty(4096, device=DEVICE)
    driver = ctypes.CDLL("libcuda.so.1")

    def fn(x):
        source, target, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(kept.data_ptr()), ctypes.c_size_t(16384)
        code = driver.cuMemcpyDtoDAsync_v2(target, source, size, ctypes.c_void_p(0))
        if code:
            raise RuntimeError(f"cuMemcpyDtoDAsync returned {code}")
        return busy(x) * 0 + kept * 2 + x * 3

    return step(fn)


def raw_copy_fixed() -> Step:
    """The extension takes the stream that is current."""
    kept = torch.empty(4096, device=DEVICE)
    driver = ctypes.CDLL("libcuda.so.1")

    def fn(x):
        source, target, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(kept.data_ptr()), ctypes.c_size_t(16384)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = driver.cuMemcpyDtoDAsync_v2(target, source, size, stream)
        if code:
            raise RuntimeError(f"cuMemcpyDtoDAsync returned {code}")
        return busy(x) * 0 + kept * 2 + x * 3

    return step(fn)


def gradient(hold: bool) -> Step:
    w = torch.full((4096,), 2.0, device=DEVICE, requires_grad=True)
    # A node of the graph that autograd made on the default stream, and that outlives every call.
    held = [w.expand_as(w)] if hold else []

    def fn(x):
        w.grad = None
        (w * x * 5).sum().backward()
        return w.grad * len(held or [0])

    return step(fn, around=torch.enable_grad)


def backward_of_the_default_stream() -> Step:
    """The parameter's gradient node was made on the default stream; backward in the capture waits for that stream."""
    return gradient(hold=True)


def backward_fixed() -> Step:
    """Nothing of an earlier forward is kept, so the node is made on the capturing stream."""
    return gradient(hold=False)
