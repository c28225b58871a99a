"""Steps with known faults that only a capture brings out."""

import torch

from capturebook.subjects import Step


def draw(seed: int) -> tuple:
    return (torch.randn(4096, generator=torch.Generator().manual_seed(seed)).cuda(),)


def joins_what_it_never_forked() -> Step:
    """The capturing stream waits on a side stream whose work was issued outside the capture."""
    side = torch.cuda.Stream()

    def fn(x):
        torch.cuda.current_stream().wait_stream(side)
        return x * 2

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2)


def forks_and_joins() -> Step:
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            a = x * 2
        b = x * 3
        main.wait_stream(side)
        return a + b

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 5)


def reads_freed_memory() -> Step:
    """A table that advance() makes anew and drops: the graph keeps only the first one's address."""
    made = []

    def advance(i: int) -> None:
        made[:] = [torch.full((4096,), 2.0, device="cuda")]

    return Step(
        fn=lambda x: x * made[0], make_inputs=draw, advance=advance, reference=lambda x: x.double() * 2, tolerance=1e-6
    )


def rebinds_its_weight() -> Step:
    """advance() binds a new weight instead of writing into the old one."""
    now = {"w": torch.ones(4096, device="cuda")}

    def advance(i: int) -> None:
        now["w"] = torch.full((4096,), float(i + 1), device="cuda")

    return Step(
        fn=lambda x: x * now["w"],
        make_inputs=draw,
        advance=advance,
        reference=lambda x: x.double() * now["w"],
        tolerance=1e-6,
    )


def launches_on_the_default_stream() -> Step:
    """As a library that knows nothing of torch's current stream does: its kernel runs once, at capture, in no graph.

    The buffer exists before, so that nothing is allocated on the other stream while capturing.
    """
    buffer = torch.empty(4096, device="cuda")

    def fn(x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.mul(x, 2, out=buffer)
        return buffer + 1

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x.double() * 2 + 1, tolerance=1e-6)


def fills_the_device():
    """More memory than any device has, asked for inside the capture alone."""

    def fn(x):
        size = 1 << 44 if torch.cuda.is_current_stream_capturing() else 4
        return x + torch.empty(size, dtype=torch.uint8, device="cuda")[:1].float() * 0

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x)


def empties_the_cache():
    def fn(x):
        torch.cuda.empty_cache()
        return x * 2

    return Step(fn=fn, make_inputs=draw, reference=lambda x: x * 2)


def stays_on_the_host():
    """Its author forgot to move anything to the GPU."""
    return Step(
        fn=lambda x: x * 2, make_inputs=lambda seed: (torch.full((4,), float(seed)),), reference=lambda x: x * 2
    )
