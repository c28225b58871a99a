"""Sound steps with streams, events, copies, threads and generators that a hasty judge would accuse."""

import torch

from capturebook.gallery.inputs import DEVICE, matrix, vector, weight
from capturebook.subjects import Step


def step(fn, reference=lambda x: x.double() * 5, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=reference, tolerance=1e-5, **more)


def joined_by_stream() -> Step:
    """Forked from the capturing stream and joined to it, both by wait_stream."""
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            a = x * 2
        b = x * 3
        main.wait_stream(side)
        return a + b

    return step(fn)


def joined_by_event() -> Step:
    """Forked and joined by events, recorded anew in each call."""
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        side.wait_event(main.record_event())
        with torch.cuda.stream(side):
            a = x * 2
        b = x * 3
        main.wait_event(side.record_event())
        return a + b

    return step(fn)


def three_streams() -> Step:
    """A side stream forks another one; the inner one is joined to the outer, the outer to the main stream."""
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        outer.wait_stream(main)
        with torch.cuda.stream(outer):
            inner.wait_stream(outer)
            with torch.cuda.stream(inner):
                a = x * 1
            b = x * 2
            outer.wait_stream(inner)
            b = a + b
        c = x * 2
        main.wait_stream(outer)
        return b + c

    return step(fn)


def break_with_events() -> Step:
    """A graph break between fork and join, joined by events: both halves keep what they need of each other."""
    import ctypes

    side, foreign_call = torch.cuda.Stream(), ctypes.CDLL(None).getpid

    def fn(x):
        main = torch.cuda.current_stream()
        side.wait_event(main.record_event())
        with torch.cuda.stream(side):
            a = x * 2
        foreign_call()
        b = x * 3
        main.wait_event(side.record_event())
        return a + b

    return step(fn)


def event_never_recorded() -> Step:
    """Waiting on an event that nobody recorded is no wait at all."""
    event = torch.cuda.Event()

    def fn(x):
        torch.cuda.current_stream().wait_event(event)
        return x * 5

    return step(fn)


def external_event() -> Step:
    """An external event recorded by the caller outside the capture: a node of the graph, not a dependency."""
    side, ready = torch.cuda.Stream(), torch.cuda.Event(external=True)
    scale, host = torch.empty(1, device=DEVICE), torch.ones(1).pin_memory()

    def advance(i: int) -> None:
        host.fill_(i + 1)
        with torch.cuda.stream(side):
            scale.copy_(host, non_blocking=True)
            ready.record()

    def fn(x):
        torch.cuda.current_stream().wait_event(ready)
        return x * scale

    return step(fn, lambda x: x.double() * scale, advance=advance)


def pinned_copy() -> Step:
    """A pinned, kept host buffer is copied in the step, non_blocking; the caller refills it between replays."""
    host = torch.zeros(4096).pin_memory()
    return step(
        lambda x: x * torch.empty_like(x).copy_(host, non_blocking=True),
        lambda x: x.double() * host.to(x.device),
        advance=lambda i: host.fill_(i + 1),
    )


def metrics_to_host() -> Step:
    """Statistics go to pinned memory on a forked stream; nobody waits on the host, and the memory is declared state."""
    side, host = torch.cuda.Stream(), torch.zeros(2).pin_memory()

    def fn(x):
        main, y = torch.cuda.current_stream(), torch.tanh(x)
        largest = torch.stack([y.amax(), y.abs().mean()])
        side.wait_stream(main)
        with torch.cuda.stream(side):
            host.copy_(largest, non_blocking=True)
        main.wait_stream(side)
        return y + 1

    return step(fn, lambda x: torch.tanh(x.double()) + 1, state=lambda: {"host": host})


def caller_synchronises() -> Step:
    """The caller synchronises and reads values on the host between steps, where it may."""
    scale = torch.ones(1, device=DEVICE)

    def advance(i: int) -> None:
        torch.cuda.synchronize()
        scale.fill_(int(scale.item() > 0) + i)

    return step(lambda x: x * scale, lambda x: x.double() * scale, state=lambda: {"scale": scale}, advance=advance)


def default_generator() -> Step:
    """torch registers its default generator with every graph: each replay draws anew."""

    def check(inputs, outputs) -> bool:
        noise = outputs - inputs[0]
        return bool((noise >= -1e-4).all() and (noise <= 1.0001).all() and noise.std() > 0.1)

    return Step(fn=lambda x: x + torch.rand_like(x), make_inputs=vector, check=check)


def gradients() -> Step:
    """Forward and backward in one capture, all nodes made on the capturing stream."""
    w = torch.full((4096,), 2.0, device=DEVICE, requires_grad=True)

    def fn(x):
        (gradient,) = torch.autograd.grad((w * x * 5).sum(), w)
        return gradient

    return step(fn, around=torch.enable_grad)


def projection_in_place() -> Step:
    """The result goes to a static buffer by out=, and the step returns nothing: state is all it leaves."""
    w, out = weight(), torch.zeros(16, 256, device=DEVICE)

    def fn(x):
        torch.mm(x, w, out=out)

    # Compared by its state, against a plain call from the same snapshot.
    return Step(fn=fn, make_inputs=matrix, state=lambda: {"out": out}, reference=lambda x: None)
