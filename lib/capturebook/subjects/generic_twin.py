"""A step of torch ops alone, for arms of subjects that bring no twin: does the stack pass this arm at all?"""

import torch

from .step import Step


def generic_twin() -> Step:
    """silu(x @ w) + x on 16 x 256 float32: one library call and one pointwise kernel."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(7)).to(device) / 16

    def make_inputs(seed: int) -> tuple:
        return (torch.randn(16, 256, generator=torch.Generator().manual_seed(seed)).to(device),)

    return Step(
        fn=lambda x: torch.nn.functional.silu(x @ weight) + x,
        make_inputs=make_inputs,
        reference=lambda x: torch.nn.functional.silu(x.double() @ weight.double()) + x.double(),
        tolerance=5e-3,
    )
