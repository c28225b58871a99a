"""One small decode of a path (kernel, cache), checked against float64: what test_sanitizer_gpu.py runs sanitized.

Its own memory for every tensor (PYTORCH_NO_CUDA_MEMORY_CACHING), so that a byte beyond one is nobody else's.
"""

import sys

import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, error, pinned
from capturebook.kernels.sparse_mla.arguments import KERNELS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.op import tuner_of

SHAPES = ((8, 2, 512), (64, 2, 1024), (64, 40, 256))
"""(heads, batch, context): heads of half a tile, lists in splits with the combine, lists whole."""


def main(kernel: str, cache: str) -> None:
    major, minor = torch.cuda.get_device_capability()
    for heads, batch, context in SHAPES:
        if kernel == "gluon" and heads % 64:
            continue
        if kernel in KERNELS:
            entry = pinned.pinned_entry(kernel, major * 10 + minor, heads, batch, cache)
            pinned.pin_entry(tuner_of(kernel, cache), entry)
        inputs = make_inputs(1, batch, heads, context, topk=128, holes=0.1, device="cuda", cache=cache)
        out, _ = decode(*inputs.args(), kernel=kernel)
        found = error(out, decode_reference(*inputs.args())[0])
        assert found <= 3e-3, (heads, batch, found)
    print("right")


if __name__ == "__main__":
    main(*sys.argv[1:])
