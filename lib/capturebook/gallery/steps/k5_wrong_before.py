"""K5: wrong before any replay: tuned on real buffers, a mutation that is not declared, or a wrong kernel."""

import torch
import triton
import triton.language as tl

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (1, 2, 4)]


def step(fn, reference, **more) -> Step:
    common = {"make_inputs": vector, "reference": reference, "tolerance": 1e-5}
    return Step(fn=fn, twin=Step(fn=lambda x: reference(x).to(x.dtype), **common), **common, **more)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def add_one_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.autotune(CONFIGS, key=["n"], restore_value=["x"])
@triton.jit
def add_one_restored_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def added(kernel, x):
    y = x * 2
    kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
    return y


def tuned_in_place() -> Step:
    """Tuning runs the kernel hundreds of times on the real buffer, and each run adds one."""
    pinned = {"add_one_kernel": {"num_warps": 4}}
    return step(lambda x: added(add_one_kernel, x), lambda x: x.double() * 2 + 1, pinned=pinned)


def tuned_in_place_fixed() -> Step:
    """restore_value puts the buffer back after each timed run."""
    return step(lambda x: added(add_one_restored_kernel, x), lambda x: x.double() * 2 + 1)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def sum_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float64)))


@triton.autotune(CONFIGS, key=["n"], reset_to_zero=["total"])
@triton.jit
def sum_reset_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float64)))


def summed(kernel, x):
    total = torch.zeros(1, device=x.device, dtype=torch.float64)
    kernel[(triton.cdiv(x.numel(), 1024),)](x.abs(), total, x.numel(), BLOCK=1024)
    return total


def tuned_accumulator() -> Step:
    """Every timed run of the benchmark adds the whole sum to the accumulator once more."""
    pinned = {"sum_kernel": {"num_warps": 4}}
    return step(lambda x: summed(sum_kernel, x), lambda x: x.double().abs().sum()[None], pinned=pinned)


def tuned_accumulator_fixed() -> Step:
    """reset_to_zero clears the accumulator before each timed run, and the wrapper makes a new one for each call."""
    return step(lambda x: summed(sum_reset_kernel, x), lambda x: x.double().abs().sum()[None])


@triton.jit
def double_floor_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled(x, blocks):
    out = torch.zeros_like(x[:4000])
    double_floor_kernel[(blocks,)](x, out, 4000, BLOCK=1024)
    return out


def last_block_forgotten() -> Step:
    """The grid divides the size rounding down, so the last, partial block is never computed."""
    return step(lambda x: doubled(x, 4000 // 1024), lambda x: x[:4000].double() * 2)


def last_block_forgotten_fixed() -> Step:
    """The grid rounds up."""
    return step(lambda x: doubled(x, triton.cdiv(4000, 1024)), lambda x: x[:4000].double() * 2)


def scribbles_on_input() -> Step:
    """The step uses its input as scratch space and does not say so: the caller's next read is wrong."""

    def fn(x):
        y = x * 2
        x.zero_()
        return y

    return step(fn, lambda x: x.double() * 2)


def scribbles_on_input_fixed() -> Step:
    """Scratch space of its own."""
    scratch = torch.empty(4096, device=DEVICE)

    def fn(x):
        y = x * 2
        scratch.zero_()
        return y

    return step(fn, lambda x: x.double() * 2)


@torch.library.custom_op("gallery::quietly_add_one", mutates_args=())
def quietly_add_one(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()


@quietly_add_one.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("gallery::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()


@add_one.register_fake
def _(x):
    return torch.empty_like(x)


def mutating(operator) -> Step:
    def fn(x):
        y = x * 2
        operator(y)
        return y * 1

    return step(fn, lambda x: x.double() * 2 + 1)


def undeclared_mutation() -> Step:
    """A custom operator writes into its argument and declares no mutation; the compiler drops the call as unused."""
    return mutating(quietly_add_one)


def undeclared_mutation_fixed() -> Step:
    """mutates_args names what the operator writes."""
    return mutating(add_one)


def adapts(forget) -> Step:
    weight = torch.full((4096,), 2.0, device=DEVICE, requires_grad=True)

    def fn(x):
        forget(weight)
        (weight * x).square().sum().backward()
        return weight.grad.clone()

    def reference(x):
        return 2 * x.double().square() * weight.detach().double()

    return Step(fn=fn, make_inputs=vector, reference=reference, tolerance=1e-5, around=torch.enable_grad)


def gradient_kept() -> Step:
    """backward() adds to the gradient that the last call left, which is no declared state of the step."""
    return adapts(lambda weight: None)


def gradient_kept_fixed() -> Step:
    """The gradient is zeroed in place first."""

    def zero(weight):
        if weight.grad is not None:
            weight.grad.zero_()

    return adapts(zero)
