"""The little that differs between triton 3.6 and 3.9 for a compilation without a launch."""

import contextlib
import re
import subprocess
from typing import Any


class TargetDriver:
    """Stands in for Triton's GPU driver while a kernel is specialised or compiled for a target that is not here.

    Triton asks it for the target and nothing else; anything more is an AttributeError that names what was asked.
    """

    def __init__(self, target):
        self._target = target

    def get_current_target(self):
        return self._target


@contextlib.contextmanager
def targeting(sm: int):
    """Inside the block Triton takes compute capability `sm` for the current GPU's; yields its GPUTarget."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget("cuda", sm, 32)
    before = driver._active
    driver.set_active(TargetDriver(target))
    try:
        yield target
    finally:
        driver._active = before


def launch_options(kernel: Any) -> dict[str, Any]:
    """Options that `JITFunction.run` adds to every launch: part of the compilation, so part of ours too."""
    from triton import knobs
    from triton.backends.nvidia.compiler import CUDAOptions

    options = {
        "debug": kernel.debug or knobs.runtime.debug,
        "instrumentation_mode": knobs.compilation.instrumentation_mode,
    }
    if "fpsan_homomorphic_casts" in CUDAOptions.__dataclass_fields__:  # since 3.9
        options["fpsan_homomorphic_casts"] = knobs.compilation.fpsan_homomorphic_casts
    return options


def ptxas_version(sm: int) -> str:
    """Version of the ptxas that compiles for `sm`, e.g. "13.1.80": 3.6 changes tools at sm_100, 3.9 at sm_90."""
    from triton.backends.nvidia.compiler import get_ptxas

    done = subprocess.run([get_ptxas(sm).path, "--version"], capture_output=True, text=True, check=True)
    return re.search(r"V(\d+\.\d+\.\d+)", done.stdout).group(1)
