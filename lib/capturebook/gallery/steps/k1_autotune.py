"""K1: a Triton autotune that benchmarks while the capture is open."""

import torch
import triton
import triton.language as tl
from triton.testing import do_bench_cudagraph

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (1, 2, 4)]


@triton.autotune(CONFIGS, key=["bucket"])
@triton.jit
def double_kernel(x, out, n, bucket, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(CONFIGS, key=["bucket"], do_bench=do_bench_cudagraph)
@triton.jit
def double_by_graph_kernel(x, out, n, bucket, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled(x, bucket: int = 128, kernel=double_kernel):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), bucket, BLOCK=1024)
    return out


def step(fn, **more) -> Step:
    common = {"make_inputs": vector, "reference": lambda x: x.double() * 2, "tolerance": 1e-2}
    return Step(fn=fn, twin=Step(fn=lambda x: x * 2, **common), **common, **more)


def bucket_of(call: int) -> int:
    """A server warms up with few tokens and captures with more."""
    return 128 if call < 2 else 256


def first_call() -> Step:
    """The autotuner times its configurations with torch.cuda.synchronize(), which no capture mode allows."""
    return step(doubled, pinned={"double_kernel": {"num_warps": 4}})


def benchmarked_by_graphs() -> Step:
    """do_bench_cudagraph captures each configuration in a graph of its own, inside the capture that is open."""
    return step(
        lambda x: doubled(x, kernel=double_by_graph_kernel), pinned={"double_by_graph_kernel": {"num_warps": 4}}
    )


def new_key() -> Step:
    """The warm-up tuned for one value of the autotune's key; the capture comes with another, which is tuned then."""
    now = {}
    return step(lambda x: doubled(x, now["bucket"]), advance=lambda i: now.update(bucket=bucket_of(i)))


def new_key_fixed() -> Step:
    """Every key that a capture may meet is tuned when the step is built."""
    now = {}
    for call in (0, 2):
        doubled(torch.zeros(4096, device=DEVICE), bucket_of(call))
    return step(lambda x: doubled(x, now["bucket"]), advance=lambda i: now.update(bucket=bucket_of(i)))


def new_dtype() -> Step:
    """Dtypes belong to the autotune's key: warmed in float32, captured in bfloat16, so it is tuned in the capture."""
    now = {}
    return step(
        lambda x: doubled(x.to(now["dtype"])).float(),
        advance=lambda i: now.update(dtype=torch.float32 if i < 2 else torch.bfloat16),
    )


def new_dtype_fixed() -> Step:
    """Both dtypes are tuned when the step is built."""
    now = {}
    for dtype in (torch.float32, torch.bfloat16):
        doubled(torch.zeros(4096, device=DEVICE, dtype=dtype))
    return step(
        lambda x: doubled(x.to(now["dtype"])).float(),
        advance=lambda i: now.update(dtype=torch.float32 if i < 2 else torch.bfloat16),
    )


LENGTH = {"bucket": 128}
"""What a custom operator reads from its module, unseen by torch.compile."""


@torch.library.custom_op("gallery::double_in_bucket", mutates_args=())
def double_in_bucket(x: torch.Tensor) -> torch.Tensor:
    return doubled(x, LENGTH["bucket"])


@double_in_bucket.register_fake
def _(x):
    return torch.empty_like(x)


def opaque_operator() -> Step:
    """The compiler cannot see into a custom operator; the raw autotuner inside tunes again for its own key."""
    return step(lambda x: double_in_bucket(x) * 1, advance=lambda i: LENGTH.update(bucket=bucket_of(i)))


def opaque_operator_fixed() -> Step:
    """Every key is tuned when the step is built."""
    for call in (0, 2):
        doubled(torch.zeros(4096, device=DEVICE), bucket_of(call))
    return step(lambda x: double_in_bucket(x) * 1, advance=lambda i: LENGTH.update(bucket=bucket_of(i)))
