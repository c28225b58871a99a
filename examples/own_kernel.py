"""A kernel of your own as a subject: `capturebook run own_kernel`, or `probe examples/own_kernel.py:build`."""

import torch
import triton
import triton.language as tl

from capturebook.subjects import Step


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4, 8)], key=["width"])
@triton.jit
def rms_norm(x, weight, out, width, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (value * scale * gain).to(out.dtype.element_ty), mask=inside)


def normed(x, weight, eps=1e-6):
    """x [rows, width] bf16, weight [width] bf16 -> [rows, width] bf16: each row over its root mean square."""
    out = torch.empty_like(x)
    rms_norm[(x.shape[0],)](x, weight, out, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def reference(x, weight, eps=1e-6):
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


def build(batch: int = 8, width: int = 4096) -> Step:
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def make_inputs(seed):
        draw = torch.Generator().manual_seed(seed)
        shapes = ((batch, width), (width,))
        return tuple(torch.randn(shape, generator=draw).to(device, torch.bfloat16) for shape in shapes)

    # A bf16 result is rounded by up to 2^-8 of itself, 0.0039; the tolerance is relative to the largest one.
    common = {"make_inputs": make_inputs, "reference": reference, "tolerance": 5e-3}
    twin = Step(fn=lambda x, weight: reference(x, weight).to(x.dtype), **common)
    return Step(fn=normed, twin=twin, kernels={"rms_norm": rms_norm}, pinned={"rms_norm": {"num_warps": 4}}, **common)
