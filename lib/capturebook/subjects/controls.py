"""The three controls of every run: what must pass, what must fail with 900, what must come out wrong.

A run whose controls do not behave supports no verdict. The first call of each passes on any device; only a
capture tells them apart.
"""

import torch

from .step import Step


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _inputs(seed: int) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(256, generator=generator).to(_device()),)


def trivial() -> Step:
    """x * 2 + 1: captures and replays correctly, or nothing does."""
    return Step(fn=lambda x: x * 2 + 1, make_inputs=_inputs, reference=lambda x: x.double() * 2 + 1, tolerance=1e-6)


def planted_item() -> Step:
    """Reads a value on the host: a capture must refuse it with 900 (cudaErrorStreamCaptureUnsupported)."""
    return Step(fn=lambda x: x * x.sum().item(), make_inputs=_inputs, reference=lambda x: x * x.sum(), tolerance=1e-4)


def baked_scalar() -> Step:
    """A host counter enters as a Python number: the graph replays the number of the capture, silently wrong."""
    now = {"i": 0.0}

    def advance(i: int) -> None:
        now["i"] = float(i + 1)

    return Step(
        fn=lambda x: x * now["i"],
        make_inputs=_inputs,
        advance=advance,
        reference=lambda x: x.double() * now["i"],
        tolerance=1e-6,
    )
