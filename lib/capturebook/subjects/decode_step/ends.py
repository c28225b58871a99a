"""What stands before the first layer and behind the last: embedding, the head's collapse of the streams, logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.compressor.reference import norm, wide
from ...kernels.glue.reference import COPIES, EPS
from .attention import linear
from .shapes import Shape


@dataclass(frozen=True)
class Ends:
    """embedding [V, hidden]; mix [4, 4 * hidden], scale [1], base [4] fp32 and norm [hidden] fp32 of the collapse; head
    [rows, hidden], the vocabulary's part that this rank has."""

    embedding: Tensor
    mix: Tensor
    scale: Tensor
    base: Tensor
    norm: Tensor
    head: Tensor

    def embed(self, tokens: Tensor) -> Tensor:
        """Streams [B, 4, hidden] of tokens [B]: four times the embedding."""
        return self.embedding[tokens][:, None, :].expand(-1, COPIES, -1).contiguous()

    def logits(self, streams: Tensor) -> Tensor:
        """[B, rows] of the last layer's streams."""
        flat = norm(streams.flatten(1).to(wide(streams.dtype)))
        weights = torch.sigmoid(linear(flat, self.mix) * self.scale + self.base) + EPS
        collapsed = (weights[:, :, None] * streams).sum(1).to(streams.dtype)
        return linear(norm(collapsed, self.norm), self.head)


def draw_ends(shape: Shape, tp: int, seed: int, device, dtype: torch.dtype) -> Ends:
    """Random ends of one rank of `tp`, which has a part of the head's rows and, here, the whole embedding."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size, dtype=torch.float32):
        return torch.randn(size, device=device, dtype=dtype, generator=generator)

    return Ends(
        normal(shape.vocabulary, shape.hidden, dtype=dtype),
        normal(COPIES, COPIES * shape.hidden) * (COPIES * shape.hidden) ** -0.5,
        normal(1),
        normal(COPIES),
        1 + 0.1 * normal(shape.hidden),
        normal(shape.vocabulary // tp, shape.hidden, dtype=dtype) * shape.hidden**-0.5,
    )
