"""The kernels under Triton's interpreter: their indexing, masks and selection checked on a CPU, without a GPU."""

from torch import Tensor
from triton.runtime.jit import JITFunction

from .launch import run_scores, run_selection
from .pinned import TUNERS


def interpret(kernel: str, tensors: tuple[Tensor, ...], topk: int, sizes: tuple[int, ...] = (5, 0, 64, 128, 32)):
    """(scores [B, padded width] fp32, slots [B, topk] int32) of CPU tensors, as `select` launches them.

    Operands of tl.dot in fp32, as in `sparse_mla.interpret`; a stock call's selection is torch's and left out (None).
    sizes: PROGRAMS, TURN, SHORT, BLOCK, WIDE in place of the configurations', so small that runs and rows are cut.
    Needs TRITON_INTERPRET=1 before the kernels are imported. Raises RuntimeError, one line, without it.
    """
    functions = [tuner.fn for tuner in TUNERS[kernel].values()]
    if isinstance(functions[0], JITFunction):
        raise RuntimeError(
            "TRITON_INTERPRET: not set when the kernels were imported; set it to 1 before the process starts"
        )
    programs, turn, short, block, wide = sizes
    constants = {} if kernel == "stock" else {"PROGRAMS": programs, "TURN": turn, "PDL": False}
    scores = run_scores(kernel, functions[0], tensors, DOT_FP32=True, E4M3=False, **constants)
    if kernel == "stock":
        return scores, None
    return scores, run_selection(
        functions[1], scores, tensors[3], tensors[4], topk, SHORT=short, BLOCK=block, WIDE=wide, PDL=False
    )
