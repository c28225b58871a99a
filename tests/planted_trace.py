"""Steps for Dynamo's trace on a CPU; each asks for a GPU where a user would, and Triton kernels are traced only."""

import ctypes

import torch
import triton
import triton.language as tl

from capturebook.subjects import Step

foreign = ctypes.CDLL(None).getpid


def draw(seed: int) -> tuple:
    return (torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)).cuda(),)


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4)], key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def launch(kernel, x):
    out = torch.empty(x.shape, device="cuda")
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


def sound() -> Step:
    return Step(fn=lambda x: launch(tuned_kernel, launch(double_kernel, x)) + 1, make_inputs=draw)


def breaks_twice() -> Step:
    def fn(x):
        foreign()  # before any operation
        y = launch(double_kernel, x)
        if x.sum() > 0:  # depends on data
            return y + 1
        return y - 1

    return Step(fn=fn, make_inputs=draw)


def counts_in_python() -> Step:
    """A host number that advance() changes: each call fails the guard that the one before left."""
    now = {"i": ""}

    def advance(i: int) -> None:
        now["i"] = "x" * i

    return Step(fn=lambda x: x * len(now["i"]), make_inputs=draw, advance=advance)


def reads_a_result() -> Step:
    """No launch is made, so what is read is what the memory held before: another number in each call."""

    def fn(x):
        y = torch.empty(x.shape, device="cuda").copy_(x)
        double_kernel[(2,)](y, y, y.numel(), BLOCK=256)
        return x * y.argmax().item()  # read

    return Step(fn=fn, make_inputs=draw)


def of_two_shapes() -> Step:
    """A function compiled by itself, behind a break, and called in two ways in every call."""

    def helper(x):
        foreign()
        return x * 2

    def fn(x):
        foreign()
        return helper(x), helper(x[:3])

    return Step(fn=fn, make_inputs=draw)


def hides_its_kernel() -> Step:
    """Launched where Dynamo does not look."""
    hidden = torch._dynamo.disable(lambda x: launch(double_kernel, x))
    return Step(fn=lambda x: hidden(x * 2) + 1, make_inputs=draw)


def has_a_stream() -> Step:
    side = torch.cuda.Stream()

    def fn(x):
        side.wait_stream(torch.cuda.current_stream())
        return x

    return Step(fn=fn, make_inputs=draw)


def raises() -> Step:
    return Step(fn=lambda x: x @ torch.ones(7, device=x.device), make_inputs=draw)
