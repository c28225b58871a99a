"""Real calls of the compressor's kernel, for those who compile it without launching it: the build check."""

import triton

from ..sparse_mla.examples import Example
from .compress import compress_kernel
from .inputs import KINDS, make_inputs
from .op import WARPS, arguments

POSITIONS = list(range(0, 64 * 131, 131))


def examples(sm: int) -> list[Example]:
    """The kernel for each of the three compressors and both cache formats; its one configuration counts as pinned."""
    config = triton.Config({}, num_warps=WARPS)
    told = {"E4M3": sm >= 89, "PDL": sm >= 90}
    return [
        Example(
            f"compress_kernel {kind} {cache}",
            compress_kernel,
            config,
            arguments(make_inputs(0, kind, POSITIONS, cache), kind == "keys") | told,
            True,
        )
        for kind in KINDS
        for cache in ("bf16", "fp8")
    ]
