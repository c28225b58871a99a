"""The kernels under Triton's interpreter: their indexing, masks and softmax checked on a CPU, without a GPU."""

import numpy
import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

from .combine import combine_kernel
from .formats import format_of
from .launch import constants_of, run
from .mma import mma_kernel
from .op import tuner_of


def interpret(
    kernel: str, tensors: tuple[Tensor, ...], scale: float, config: triton.Config, sm: int = 90, entries: int = 0
) -> tuple[Tensor, Tensor]:
    """(out [B, H, 512] fp32, lse [B, H] fp32) of CPU tensors, as `decode` launches them, with one configuration.

    entries: of the lists a split, as `launch.split_count` takes them.

    All in fp32: the interpreter of Triton 3.6 to 3.9 multiplies bf16 operands of tl.dot wrongly and truncates where a
    GPU rounds to bf16. So this checks everything but the rounding. The autotuner is left out: it needs a driver.
    sm: of the GPU whose way to convert e4m3 is taken. Needs TRITON_INTERPRET=1 before the kernels are imported. Raises
    RuntimeError, one line, where it cannot run.
    """
    if isinstance(mma_kernel.fn, JITFunction):
        raise RuntimeError(
            "TRITON_INTERPRET: not set when the kernels were imported; set it to 1 before the process starts"
        )
    if _minor(triton.__version__) < (3, 7) and _minor(numpy.__version__) >= (2, 4):
        raise RuntimeError(
            f"triton {triton.__version__}: its interpreter cannot loop with numpy {numpy.__version__}; "
            "install numpy < 2.4 or a newer triton"
        )
    cache = format_of(tensors[1])
    constants = {**config.kwargs, **constants_of(kernel, cache, sm)}
    if kernel == "mma":
        constants["DOT_FP32"] = True
    main = tuner_of(kernel, cache).fn
    return run(main, combine_kernel, kernel, tensors, scale, torch.float32, entries, **constants)


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
