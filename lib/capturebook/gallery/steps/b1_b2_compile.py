"""B1: torch.compile compiles in the capture. B2: Inductor tunes its own kernels in the capture."""

import torch

from capturebook.gallery.inputs import DEVICE, draw, matrix, weight
from capturebook.subjects import Step


def step(fn, reference, **more) -> Step:
    return Step(fn=fn, make_inputs=matrix, reference=reference, **more)


def projection() -> Step:
    """The compiled step is called for the first time in the capture: Dynamo and Inductor run there."""
    w = weight()
    return step(
        lambda x: torch.nn.functional.silu(x @ w) + x,
        lambda x: torch.nn.functional.silu(x.double() @ w.double()) + x.double(),
    )


def pointwise() -> Step:
    """As above without a library call, so that nothing but the compiler can fail."""
    return step(lambda x: torch.nn.functional.gelu(x) * 2, lambda x: torch.nn.functional.gelu(x.double()) * 2)


def guard_fails() -> Step:
    """A Python float that the compiled code was specialised for changes before the capture: it recompiles there."""
    now = {}
    return step(
        lambda x: torch.nn.functional.gelu(x) * now["scale"],
        lambda x: torch.nn.functional.gelu(x.double()) * now["scale"],
        advance=lambda i: now.update(scale=2.0 if i < 2 else 3.0),
    )


def guard_fails_fixed() -> Step:
    """The scale is a tensor, so that its value is no part of the compiled code."""
    scale = torch.ones(1, device=DEVICE)
    return step(
        lambda x: torch.nn.functional.gelu(x) * scale,
        lambda x: torch.nn.functional.gelu(x.double()) * scale,
        state=lambda: {"scale": scale},
        advance=lambda i: scale.fill_(2.0 if i < 2 else 3.0),
    )


def ahead_of_time(rows: int):
    """silu(x) + x for this many rows, compiled by Inductor without being run, as a server's graph splitter does."""
    graph = torch.fx.symbolic_trace(lambda x: torch.nn.functional.silu(x) + x)
    return torch._inductor.compile(graph, [draw(0, rows, 256)])


def right(x):
    return torch.nn.functional.silu(x.double()) + x.double()


def compiled_but_never_run() -> Step:
    """Compiled ahead, but never run: Inductor's kernels choose their configuration at their first launch."""
    return step(ahead_of_time(16), right)


def second_size_never_run() -> Step:
    """One artifact for each size; the warm-up ran the small one, the capture needs the large one, still untuned."""
    small, large, now = ahead_of_time(8), ahead_of_time(16), {}

    def fn(x):
        if now["full"]:
            return large(x)
        return torch.cat([small(x[:8]), small(x[8:])])

    return step(fn, right, advance=lambda i: now.update(full=i >= 2))


def second_size_never_run_fixed() -> Step:
    """Every artifact is run once when the step is built."""
    small, large, now = ahead_of_time(8), ahead_of_time(16), {}
    small(draw(0, 8, 256))
    large(draw(0, 16, 256))

    def fn(x):
        if now["full"]:
            return large(x)
        return torch.cat([small(x[:8]), small(x[8:])])

    return step(fn, right, advance=lambda i: now.update(full=i >= 2))
