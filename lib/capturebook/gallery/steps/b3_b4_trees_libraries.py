"""B3: Inductor's cudagraph trees. B4: a CUDA library's first use falls into the capture."""

import torch

from capturebook.gallery.inputs import DEVICE, draw, matrix, vector, weight
from capturebook.subjects import Step


def projection() -> Step:
    """Modes with cudagraph trees capture and replay graphs of their own; they cannot do so inside a capture."""
    w = weight()
    return Step(
        fn=lambda x: torch.nn.functional.silu(x @ w) + x,
        make_inputs=matrix,
        reference=lambda x: torch.nn.functional.silu(x.double() @ w.double()) + x.double(),
    )


def compiling(mode: str) -> Step:
    w = weight()
    half = torch.compile(lambda x: torch.relu(x @ w), mode=mode)
    return Step(
        fn=lambda x: half(x) + x,
        make_inputs=matrix,
        reference=lambda x: torch.relu(x.double() @ w.double()) + x.double(),
    )


def brings_its_own_trees() -> Step:
    """A library compiles a part of the step with reduce-overhead, whose trees then meet the caller's capture."""
    return compiling("reduce-overhead")


def brings_its_own_trees_fixed() -> Step:
    """The part is compiled in a mode without trees."""
    return compiling("default")


def twice(between) -> Step:
    w = weight()

    def half(x):
        return torch.relu(x @ w)

    def step_with(half):
        def fn(x):
            first = between(half(x))
            return first - half(x + 1)

        return fn

    return Step(
        fn=step_with(half),
        compiled=lambda compile_: step_with(compile_(half)),
        make_inputs=matrix,
        reference=lambda x: torch.relu(x.double() @ w.double()) - torch.relu((x.double() + 1) @ w.double()),
    )


def two_live_outputs() -> Step:
    """A compiled part is called twice while its first output is in use: the second run writes over it."""
    return twice(lambda first: first)


def two_live_outputs_fixed() -> Step:
    """The first output is cloned before the next run."""
    return twice(torch.clone)


def matmul() -> Step:
    """cuBLAS makes its handle and workspace at the first call of a thread, which a capture does not allow."""
    w = weight()
    return Step(fn=lambda x: x @ w, make_inputs=matrix, reference=lambda x: x.double() @ w.double())


def convolution() -> Step:
    """cuDNN makes its handle at the first convolution of a thread."""
    w = draw(7, 4, 4, 3, 3)

    def image(x):
        return x.view(1, 4, 32, 32)

    return Step(
        fn=lambda x: torch.nn.functional.conv2d(image(x), w),
        make_inputs=vector,
        reference=lambda x: torch.nn.functional.conv2d(image(x).double(), w.double()),
        tolerance=5e-3,
    )


def fourier() -> Step:
    """cuFFT makes a plan for each new size, and allocates for it."""
    return Step(
        fn=lambda x: torch.fft.rfft(x).abs(),
        make_inputs=vector,
        reference=lambda x: torch.fft.rfft(x.double()).abs(),
    )


def used_late(warm: bool) -> Step:
    now = {}
    if warm:
        torch.fft.irfft(torch.fft.rfft(torch.ones(4096, device=DEVICE)))
    return Step(
        fn=lambda x: torch.fft.irfft(torch.fft.rfft(x)) * 2 if now["filter"] else x * 2,
        make_inputs=vector,
        reference=lambda x: x.double() * 2,
        advance=lambda i: now.update(filter=i >= 2),
    )


def first_used_in_capture() -> Step:
    """The warm-up took a path without the library; the capture is the first to need it."""
    return used_late(warm=False)


def first_used_in_capture_fixed() -> Step:
    """The library is used once when the step is built, at the sizes of the capture."""
    return used_late(warm=True)
