"""Small decodes of a path (kernel, cache), checked against float64: what test_sanitizer_gpu.py runs sanitized.

Its own memory for every tensor (PYTORCH_NO_CUDA_MEMORY_CACHING), so that a byte beyond one is nobody else's.
"""

import sys
from typing import NamedTuple

import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, error, pinned
from capturebook.kernels.sparse_mla.arguments import KERNELS
from capturebook.kernels.sparse_mla.inputs import Inputs, make_inputs
from capturebook.kernels.sparse_mla.launch import split_count
from capturebook.kernels.sparse_mla.op import tuner_of
from kernel_cases import planned

FULL = 8
"""Requests of a case whose lists are full, to 7/8 at least and but for a tenth."""


class Case(NamedTuple):
    """One call. whole: its lists are in one split, whose kernel applies the sink by itself; else the combine does."""

    heads: int
    batch: int
    whole: bool
    window: int
    topk: int
    meant: str = ""  # of the Gluon kernels

    def inputs(self, cache: str, device: str) -> Inputs:
        """V3.2 has one list, as long as both together. A sanitized tile takes long: all but FULL requests have none."""
        window, topk, ratio = (0, self.window + self.topk, 1) if cache == "v32" else (self.window, self.topk, 4)
        shape = dict(context=4 * self.topk + self.window, window=window, topk=topk, ratio=ratio)
        made = make_inputs(1, self.batch, self.heads, holes=0.1, device=device, cache=cache, **shape)
        made.window_lengths[FULL:], made.extra_lengths[FULL:] = 0, 0
        return made


CASES = {
    # half a tile of heads, and a whole one
    "mma": (Case(8, 2, False, 128, 128), Case(64, 2, False, 128, 128), Case(64, 65, True, 128, 64)),
    "simt": (Case(8, 2, False, 128, 128), Case(64, 2, False, 128, 128), Case(64, 8, True, 128, 64)),
    # two buffers come round: a split has four tiles of 16 entries, a whole list three of 64
    "gluon": (
        Case(64, 8, False, 128, 128, "columns"),
        Case(64, 2, True, 16, 16, "columns"),
        Case(64, 9, False, 128, 128, "wgmma"),
        Case(64, 67, True, 128, 64, "wgmma"),
    ),
}


def splits_of(kernel: str, case: Case, inputs: Inputs, sm: int, cache: str) -> int:
    """How many splits the call has; a Gluon one is refused unless its kernel is the one that is meant."""
    if kernel == "gluon":
        return planned(case.meant, inputs).splits
    width = inputs.window_indices.shape[1] + inputs.extra_indices.shape[1]
    entries = pinned.pinned_entry(kernel, sm, case.heads, case.batch, cache).get("entries", 0)
    return split_count(kernel, case.batch, case.heads, width, entries)


def main(kernel: str, cache: str) -> None:
    major, minor = torch.cuda.get_device_capability()
    sm = major * 10 + minor
    for case in CASES[kernel]:
        if kernel in KERNELS:
            pinned.pin_entry(tuner_of(kernel, cache), pinned.pinned_entry(kernel, sm, case.heads, case.batch, cache))
        inputs = case.inputs(cache, "cuda")
        assert (splits_of(kernel, case, inputs, sm, cache) == 1) is case.whole, case
        out, _ = decode(*inputs.args(), kernel=kernel)
        found = error(out, decode_reference(*inputs.args())[0])
        assert found <= 3e-3, (case, found)
    print("right")


if __name__ == "__main__":
    main(*sys.argv[1:])
