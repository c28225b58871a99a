"""mHC around one sublayer of DeepSeek-V4-Flash as a subject: collapse the four copies, then expand them again.

The sublayer itself is not there: its output is an input. The twin is the eager code, whose 20 Sinkhorn iterations alone
are 117 launches; a sweep with a compiled question shows fused, eager and compiled side by side.
"""

import torch

from ..kernels.glue import KERNELS, mhc_post, mhc_post_reference, mhc_pre, mhc_pre_reference
from ..kernels.glue.cost import mhc_cost
from ..kernels.glue.inputs import make_inputs
from .step import Step


def build(batch: int = 8, hidden: int = 4096) -> Step:
    """mHC on CUDA, or on a CPU. hidden: width of one copy, a multiple of 1024; others are refused by the operator."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _, projection, scale, base, _ = make_inputs(0, batch, hidden, device)

    def inputs(seed: int) -> tuple:
        streams, _, _, _, out = make_inputs(seed, batch, hidden, device)
        return streams, out

    def fused(streams, out):
        collapsed, after, comb = mhc_pre(streams, projection, scale, base)
        return collapsed, mhc_post(streams, out, after, comb)

    def eager(streams, out):
        collapsed, after, comb = mhc_pre_reference(streams, projection, scale, base, torch.float32)
        new = mhc_post_reference(streams, out, after, comb, torch.float32)
        return collapsed.to(streams.dtype), new.to(streams.dtype)

    def reference(streams, out):
        collapsed, after, comb = mhc_pre_reference(streams, projection, scale, base)
        return collapsed, mhc_post_reference(streams, out, after, comb)

    least = mhc_cost(batch, hidden)
    # bf16 rounds by up to 2^-9 of a value; the tolerance is relative to the largest one.
    common = {"make_inputs": inputs, "reference": reference, "tolerance": 4e-3}
    common |= {"cost": lambda *given: (least.bytes, least.flops)}
    kernels = {name: KERNELS[name] for name in ("project_kernel", "collapse_kernel", "expand_kernel")}
    return Step(fn=fused, twin=Step(fn=eager, **common), kernels=kernels, **common)
