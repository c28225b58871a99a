"""Inputs of the glue, drawn from a seed."""

import torch
from torch import Tensor

from ..sparse_mla.formats import page_stride
from .reference import COPIES, MIXES
from .reference_rows import rotation_table

POSITIONS = 8192
"""Rows of the table of angles."""


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


def make_layer(seed: int, batch: int, heads: int = 64, page: int = 256, device: str | torch.device = "cpu") -> dict:
    """What the rest of a layer's glue reads, by name, all normal but the rotation: the sizes of V4-Flash.

    latent [B, 1536], q and attended [B, heads, 512], gate_up [B, 4096], attention [B, 4096] (what the attention
    returned), all bf16; norms ([1024], [512]) fp32; table of 8192 positions; positions and slots [B] int32, a page for
    each request; cache [B, stride] uint8, a window of `page` tokens each, zero.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, device=device, dtype=dtype, generator=generator)

    positions = torch.randint(0, POSITIONS, (batch,), device=device, generator=generator, dtype=torch.int32)
    return {
        "latent": normal(batch, 1536),
        "q": normal(batch, heads, 512),
        "attended": normal(batch, heads, 512),
        "gate_up": normal(batch, 4096),
        "attention": normal(batch, 4096),
        "norms": (normal(1024, dtype=torch.float32), normal(512, dtype=torch.float32)),
        "table": rotation_table(POSITIONS, device=device),
        "positions": positions,
        "slots": torch.arange(batch, device=device, dtype=torch.int32) * page + positions % page,
        "cache": torch.zeros(batch, page_stride(page), device=device, dtype=torch.uint8),
    }
