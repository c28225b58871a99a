"""K6: the graph reads or writes memory that is no longer what it was when it was captured."""

import torch

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step


def step(fn, reference, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=reference, tolerance=1e-5, **more)


def full(value: float, size: int = 4096):
    return torch.full((size,), float(value), device=DEVICE)


def weight_rebound() -> Step:
    """A weight update binds a new tensor; the graph goes on reading the old one."""
    now = {}
    return step(lambda x: x * now["w"], lambda x: x.double() * now["w"], advance=lambda i: now.update(w=full(i + 1)))


def weight_rebound_fixed() -> Step:
    """The update is copied into the tensor that the graph knows."""
    w = full(0)
    return step(
        lambda x: x * w, lambda x: x.double() * w, state=lambda: {"w": w}, advance=lambda i: w.copy_(full(i + 1))
    )


def table_freed() -> Step:
    """A lookup table is made anew with equal contents; the graph reads the first one, whose memory is used again."""
    now = {}
    return step(lambda x: x * now["t"], lambda x: x.double() * 2, advance=lambda i: now.update(t=full(2)))


def table_freed_fixed() -> Step:
    """The table is made once and kept."""
    table = full(2)
    return step(lambda x: x * table, lambda x: x.double() * 2)


def pinned_freed() -> Step:
    """The host buffer of a copy was freed and pinned memory is used again; each replay copies what lies there now."""
    now = {}

    def advance(i: int) -> None:
        now["host"] = torch.full((4096,), 2.0).pin_memory()

    return step(
        lambda x: x * torch.empty_like(x).copy_(now["host"], non_blocking=True),
        lambda x: x.double() * 2,
        advance=advance,
    )


def pinned_freed_fixed() -> Step:
    """One pinned buffer, kept as long as the graph."""
    host = torch.full((4096,), 2.0).pin_memory()
    return step(lambda x: x * torch.empty_like(x).copy_(host, non_blocking=True), lambda x: x.double() * 2)


def unmapped() -> Step:
    """A table was freed and its memory given back to the driver: the replay reads an address that is mapped no more."""
    size = 16 << 20
    now = {"t": full(2, size)}

    def advance(i: int) -> None:
        if i > 2:
            # The new one first, so that it cannot come to lie where the old one was.
            now.update(old=now["t"], t=full(2, size))
            del now["old"]
            torch.cuda.empty_cache()

    return step(lambda x: x * now["t"][-4096:], lambda x: x.double() * 2, advance=advance)


def unmapped_fixed() -> Step:
    """The table is made once and kept."""
    table = full(2, 16 << 20)
    return step(lambda x: x * table[-4096:], lambda x: x.double() * 2)


def doubled(x):
    return x * 2


def driven(drive) -> Step:
    """A step that is right by itself; what is wrong is how its caller uses the graph."""
    return Step(fn=doubled, make_inputs=vector, reference=lambda x: x.double() * 2, tolerance=1e-5, drive=drive)


def captured(h, x):
    doubled(x)
    with h.capture():
        out = doubled(x)
    return out


def input_rebound() -> Step:
    """The caller passes the next input by binding a name; the graph reads the tensor of the capture."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        x = full(5)
        h.replay()
        h.check(out, full(10))

    return driven(drive)


def input_rebound_fixed() -> Step:
    """The next input is copied into the captured one."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        x.copy_(full(5))
        h.replay()
        h.check(out, full(10))

    return driven(drive)


def input_freed() -> Step:
    """The captured input was freed, and its block handed to another tensor before the replay."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        del x
        others = [full(7) for _ in range(64)]
        h.replay()
        h.check(out, full(2))
        del others

    return driven(drive)


def input_freed_fixed() -> Step:
    """The captured input is kept as long as the graph."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        others = [full(7) for _ in range(64)]
        h.replay()
        h.check(out, full(2))
        del others, x

    return driven(drive)


def read_too_early() -> Step:
    """The output is read after the capture, which computed nothing."""

    def drive(h):
        out = captured(h, full(1))
        h.check(out, full(2))

    return driven(drive)


def read_too_early_fixed() -> Step:
    """A replay comes first."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        h.replay()
        h.check(out, full(2))

    return driven(drive)


def output_overwritten() -> Step:
    """The first replay's output is kept by reference; the second replay writes into the same memory."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        h.replay()
        first = out
        x.fill_(3)
        h.replay()
        h.check(first, full(2))

    return driven(drive)


def output_overwritten_fixed() -> Step:
    """What must outlive the next replay is cloned."""

    def drive(h):
        x = full(1)
        out = captured(h, x)
        h.replay()
        first = out.clone()
        x.fill_(3)
        h.replay()
        h.check(first, full(2))

    return driven(drive)


def two_graphs(h, hold: bool):
    """Two graphs in one pool; a second capture may use what the first one's freed output left."""
    pool, x = torch.cuda.graph_pool_handle(), full(1)
    doubled(x)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with h.capture(graph=first, pool=pool):
        out = doubled(x)
    address = out.data_ptr()
    kept = [out] if hold else []
    del out
    with h.capture(graph=second, pool=pool):
        other = x * 50
    first.replay()
    second.replay()
    if kept:
        h.check(kept[0], full(2))
        return
    # The graph still writes to that address: whoever holds it by address (a C++ runtime) now reads the other's result.
    h.check(other if other.data_ptr() == address else full(2), full(2))


def output_not_held() -> Step:
    """Graphs share a pool and the first one's output is not held, so the second one's takes its place."""
    return driven(lambda h: two_graphs(h, hold=False))


def output_not_held_fixed() -> Step:
    """The first output is held as long as its graph."""
    return driven(lambda h: two_graphs(h, hold=True))
