"""The random number generators that a step may draw from, as part of what a call starts from.

A replay continues the device's generator where the last draw left it, exactly as an eager call does. So a reference
that starts from the same generator state draws the same numbers, while a number drawn on the host at capture stays.
"""

import random
import sys


def snapshot(cuda: bool) -> dict:
    """States of Python's, NumPy's (if loaded), torch's CPU and, with `cuda`, the current device's default generator."""
    import torch

    states = {"python": random.getstate(), "cpu": torch.get_rng_state()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if cuda:
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore(states: dict) -> None:
    import torch

    random.setstate(states["python"])
    torch.set_rng_state(states["cpu"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


def drew(before: dict, after: dict) -> bool:
    """Whether numbers were drawn from torch's CPU or device generator in between."""
    import torch

    return any(not torch.equal(before[name], after[name]) for name in ("cpu", "cuda") if name in before)
