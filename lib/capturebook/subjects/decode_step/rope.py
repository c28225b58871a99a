"""Rotary embedding of DeepSeek-V4: the last `rope` values of a row, neighbours as pairs, from a table by position."""

import math

import torch
from torch import Tensor

from .shapes import Shape

FAST, SLOW = 32, 1
"""yarn: frequencies that turn more often than FAST times in the trained context stay, below SLOW they are divided."""


def frequencies(shape: Shape, kind: str) -> Tensor:
    """[rope / 2] fp32, radians a token, of a layer of this kind. The window's layers have a base of their own."""
    theta = shape.theta if kind == "swa" else shape.compressed_theta
    plain = 1.0 / theta ** (torch.arange(0, shape.rope, 2, dtype=torch.float32) / shape.rope)
    if kind == "swa" or shape.extended is None:
        return plain
    factor, trained = shape.extended

    def dimension(turns: int) -> float:
        return shape.rope * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(dimension(FAST)), 0), min(math.ceil(dimension(SLOW)), shape.rope - 1)
    ramp = ((torch.arange(shape.rope // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp)


def table(shape: Shape, kind: str, positions: int, device) -> Tensor:
    """[positions, rope] fp32: the cosines of a position, then its sines. Angles are fp32 products, as the model's."""
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies(shape, kind)
    return torch.cat((angles.cos(), angles.sin()), dim=1).to(device)
