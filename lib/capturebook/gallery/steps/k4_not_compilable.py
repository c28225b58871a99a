"""K4: the step is not registered with torch.compile, or cannot be traced."""

import ctypes

import torch
import triton
import triton.language as tl

from capturebook.gallery.inputs import vector
from capturebook.subjects import Step

count_call = ctypes.CDLL(None).getpid
"""Stands for a foreign function: a JIT kernel's launcher, a counter of a metrics library."""


def step(fn, factor: float = 2.0, **more) -> Step:
    common = {"make_inputs": vector, "reference": lambda x: x.double() * factor, "tolerance": 1e-5}
    return Step(fn=fn, twin=Step(fn=lambda x: x * factor, **common), **common, **more)


def foreign_call() -> Step:
    """Dynamo does not know the function, and fullgraph forbids the graph break that it would take."""

    def fn(x):
        y = x * 2
        count_call()
        return y * 1

    return step(fn)


@torch.library.custom_op("gallery::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    count_call()
    return x.clone()


@counted.register_fake
def _(x):
    return torch.empty_like(x)


def foreign_call_fixed() -> Step:
    """The foreign call sits in a registered operator with a fake implementation."""
    return step(lambda x: counted(x * 2))


@torch.library.custom_op("gallery::double_unknown", mutates_args=())
def double_unknown(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("gallery::double_known", mutates_args=())
def double_known(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double_known.register_fake
def _(x):
    return torch.empty_like(x)


def no_fake() -> Step:
    """A custom operator without a fake implementation: the compiler cannot know the shape of what it returns."""
    return step(lambda x: double_unknown(x))


def no_fake_fixed() -> Step:
    """A fake implementation gives shape and dtype."""
    return step(lambda x: double_known(x))


def _transposed(x):
    """Doubled, [64, 64], its columns one after the other in memory."""
    return (x.view(64, 64) * 2).t().contiguous().t()


@torch.library.custom_op("gallery::transposed_unsaid", mutates_args=())
def transposed_unsaid(x: torch.Tensor) -> torch.Tensor:
    return _transposed(x)


@transposed_unsaid.register_fake
def _(x):
    return x.new_empty(64, 64)


@torch.library.custom_op("gallery::transposed_said", mutates_args=())
def transposed_said(x: torch.Tensor) -> torch.Tensor:
    return _transposed(x)


@transposed_said.register_fake
def _(x):
    return x.new_empty(64, 64).t()


def wrong_strides(operator=transposed_unsaid) -> Step:
    """The fake promises rows one after the other, the operator returns columns: compiled code asserts, or misreads."""
    common = {"make_inputs": vector, "reference": lambda x: x.double().view(64, 64) * 2 + 1, "tolerance": 1e-5}
    return Step(fn=lambda x: operator(x) + 1, twin=Step(fn=lambda x: _transposed(x) + 1, **common), **common)


def wrong_strides_fixed() -> Step:
    """The fake has the strides of the real output."""
    return wrong_strides(transposed_said)


@torch.library.custom_op("gallery::widened_unsaid", mutates_args=())
def widened_unsaid(x: torch.Tensor) -> torch.Tensor:
    return x.float() * 2


@widened_unsaid.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("gallery::widened_said", mutates_args=())
def widened_said(x: torch.Tensor) -> torch.Tensor:
    return x.float() * 2


@widened_said.register_fake
def _(x):
    return torch.empty_like(x, dtype=torch.float32)


def wrong_dtype(operator=widened_unsaid) -> Step:
    """The fake promises bf16, the operator returns fp32: compiled code takes its bytes for bf16, without an error."""
    common = {
        "make_inputs": lambda seed: (vector(seed)[0].bfloat16(),),
        "reference": lambda x: x.double() * 2 + 8,
        "tolerance": 2e-2,
    }
    return Step(fn=lambda x: operator(x) + 8, twin=Step(fn=lambda x: x.float() * 2 + 8, **common), **common)


def wrong_dtype_fixed() -> Step:
    """The fake has the dtype of the real output."""
    return wrong_dtype(widened_said)


def branch_on_data() -> Step:
    """Python branches on a tensor's value, which no traced graph holds."""

    def fn(x):
        if (x.abs().max() > 0).item():
            return x * 2
        return x * 3

    return step(fn)


def branch_on_data_fixed() -> Step:
    """torch.where takes the branch on the device."""
    return step(lambda x: torch.where(x.abs().max() > 0, x * 2, x * 3))


def zero_total(arguments, **_):
    arguments["total"].zero_()


@triton.autotune([triton.Config({}, num_warps=warps, pre_hook=zero_total) for warps in (2, 4)], key=["n"])
@triton.jit
def hooked_sum_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float64)))


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4)], key=["n"], reset_to_zero=["total"])
@triton.jit
def reset_sum_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float64)))


def summed(kernel, x):
    total = torch.zeros((), device=x.device, dtype=torch.float64)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, total, x.numel(), BLOCK=1024)
    return total


def sums(kernel) -> Step:
    common = {"make_inputs": vector, "reference": lambda x: x.double().sum(), "tolerance": 1e-3}
    return Step(fn=lambda x: summed(kernel, x), twin=Step(fn=lambda x: x.double().sum(), **common), **common)


def pre_hook() -> Step:
    """The autotune's configurations run a pre_hook, which is Python that the compiler cannot run at that place."""
    return sums(hooked_sum_kernel)


def pre_hook_fixed() -> Step:
    """reset_to_zero guards the tuning, and the wrapper zeroes before every call."""
    return sums(reset_sum_kernel)
