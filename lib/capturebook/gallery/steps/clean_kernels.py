"""Sound steps around Triton kernels: autotuned, registered, in place, cold."""

import torch
import triton
import triton.language as tl

from capturebook.gallery.inputs import vector
from capturebook.subjects import Step

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (1, 2, 4)]


def step(fn, reference=lambda x: x.double() * 2, **more) -> Step:
    common = {"make_inputs": vector, "reference": reference, "tolerance": 1e-5}
    return Step(fn=fn, twin=Step(fn=lambda x: reference(x).to(x.dtype), **common), **common, **more)


@triton.jit
def plain_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(CONFIGS, key=["n"], restore_value=["x"])
@triton.jit
def in_place_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(CONFIGS, key=["n"], reset_to_zero=["total"])
@triton.jit
def total_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float64)))


def launch(kernel, x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def plain() -> Step:
    """Compiled and loaded by Triton in the capture, if it must be: this driver allows that."""
    return step(lambda x: launch(plain_kernel, x))


def autotuned() -> Step:
    """Tuned in the warm-up, with the very key of the capture."""
    return step(lambda x: launch(tuned_kernel, x), pinned={"tuned_kernel": {"num_warps": 4}})


def in_place() -> Step:
    """An autotuned kernel that writes its argument, with restore_value."""

    def fn(x):
        y = x * 1
        in_place_kernel[(4,)](y, y.numel(), BLOCK=1024)
        return y

    return step(fn)


def accumulator() -> Step:
    """An autotuned kernel that adds atomically, with reset_to_zero and a new accumulator for each call."""

    def fn(x):
        total = torch.zeros(1, device=x.device, dtype=torch.float64)
        total_kernel[(4,)](x.abs(), total, x.numel(), BLOCK=1024)
        return total

    return step(fn, lambda x: x.double().abs().sum()[None])


@torch.library.custom_op("gallery::clean_double", mutates_args=())
def clean_double(x: torch.Tensor) -> torch.Tensor:
    return launch(plain_kernel, x)


@clean_double.register_fake
def _(x):
    return torch.empty_like(x)


def custom_operator() -> Step:
    """A Triton kernel behind torch.library.custom_op, with a fake implementation."""
    return step(lambda x: clean_double(x) * 1)


@torch.library.custom_op("gallery::clean_double_", mutates_args=("x",))
def clean_double_(x: torch.Tensor) -> None:
    in_place_kernel[(4,)](x, x.numel(), BLOCK=1024)


@clean_double_.register_fake
def _(x):
    return None


def mutating_operator() -> Step:
    """A custom operator that writes its argument, and says so."""

    def fn(x):
        y = x * 1
        clean_double_(y)
        return y

    return step(fn)


@torch.library.triton_op("gallery::clean_triton", mutates_args=())
def clean_triton(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(tuned_kernel)[(4,)](x, out, x.numel(), BLOCK=1024)
    return out


def triton_operator() -> Step:
    """A Triton kernel behind torch.library.triton_op: the compiler sees into it."""
    return step(lambda x: clean_triton(x) * 1)
