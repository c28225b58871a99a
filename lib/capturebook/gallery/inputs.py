"""Small inputs that the gallery's steps share. The values vary with the seed, nothing else does."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Standard normal float32 values on the device, the same on every machine."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def vector(seed: int) -> tuple:
    """One vector, [4096]."""
    return (draw(seed, 4096),)


def matrix(seed: int) -> tuple:
    """One activation, [16, 256]."""
    return (draw(seed, 16, 256),)


def weight(seed: int = 7) -> torch.Tensor:
    """A projection, [256, 256], that keeps the size of what it multiplies."""
    return draw(seed, 256, 256) / 16
