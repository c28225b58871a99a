"""Inputs of mHC, drawn from a seed."""

import torch
from torch import Tensor

from .reference import COPIES, MIXES


def make_inputs(seed: int, batch: int, d: int = 4096, device: str | torch.device = "cpu") -> tuple[Tensor, ...]:
    """(streams, projection, scale, base, out): the arguments of `mhc_pre`, and a sublayer's output for `mhc_post`.

    All normal; the projection over the root of its width, so that the weights before sigmoid and softmax are of size 1.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape, dtype=torch.float32):
        return torch.randn(shape, device=device, dtype=dtype, generator=generator)

    return (
        normal(batch, COPIES, d, dtype=torch.bfloat16),
        normal(MIXES, COPIES * d) * (COPIES * d) ** -0.5,
        normal(3),
        normal(MIXES),
        normal(batch, d, dtype=torch.bfloat16),
    )
