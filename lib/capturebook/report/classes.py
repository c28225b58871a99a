"""What the classes K1 to K6 and B1 to B9 mean: a phrase each, and the legend of them all."""

from ..attribution.recipes import RECIPES
from ..attribution.rules import RULES
from .block import Block, table

TITLES = {
    "K1": "the kernel's Triton autotune runs inside the capture",
    "K2": "the step synchronises with the host, copies pageable memory, or draws or seeds random numbers",
    "K3": "the step's own streams are wired wrongly",
    "K4": "the step is not registered with torch.compile, or cannot be compiled",
    "K5": "wrong before any replay, or an undeclared write",
    "K6": "right when called, wrong when replayed",
    "B1": "a compile or recompile inside the capture",
    "B2": "Inductor's own autotune inside the capture",
    "B3": "cudagraph trees inside an outer capture, or their output overwritten",
    "B4": "first use of a CUDA library inside the capture",
    "B5": "torch.compile drops the step's stream code",
    "B6": "another thread uses CUDA during the capture",
    "B7": "an allocator, driver, debug or profiler setting",
    "B8": "a right step comes out wrong when compiled",
    "B9": "the compiler fails on a right step",
}


def named(cls: str) -> str:
    """`B5: torch.compile drops the step's stream code`."""
    return f"{cls}: {TITLES[cls]}"


def legend() -> Block:
    """Every class with its owner, what it is and what to do about it."""
    owners = {rule.cls: rule.owner for rule in RULES if rule.cls}
    rows = [[name, owners[name], title, RECIPES[name].says] for name, title in TITLES.items()]
    return table(["Class", "Owner", "What it is", "What to do"], rows, stack=True)
