"""Runs the compressor's kernel under Triton's interpreter and prints its errors as JSON; a process of its own.

Run by test_compressor.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated. Rows are fp32 and e4m3
is made by integer operations: the interpreter rounds to bf16 by cutting, and does not convert to e4m3.
"""

import json

import torch

from capturebook.kernels.compressor.compress import compress_kernel
from capturebook.kernels.compressor.inputs import KINDS, make_inputs
from capturebook.kernels.compressor.op import arguments
from capturebook.kernels.compressor.reference import compress_reference
from capturebook.kernels.indexer.formats import values_of
from capturebook.kernels.sparse_mla.formats import dequantise

POSITIONS = [3, 127, 130, 255, 254]
"""A context's first window of 4, one of 128, none that ends, both, and none."""


def values(cache, kind):
    if cache.dtype != torch.uint8:
        return cache.double().view(-1, cache.shape[-1])
    if kind == "keys":
        return values_of(cache, torch.float64).view(-1, 128)
    return dequantise(cache, torch.arange(len(cache) * KINDS[kind][3]))


found = {}
for kind in KINDS:
    for cache in ("bf16", "fp8"):
        tensors = make_inputs(1, kind, POSITIONS, cache, torch.float32)
        exact = [tensor.double() if tensor.dtype == torch.float32 else tensor.clone() for tensor in tensors]
        exact[6] = values(tensors[6], kind).clone()
        exact[6] = exact[6].view(-1, 64, 128) if kind == "keys" else exact[6]
        before = exact[6].clone()
        compress_reference(*exact, keys=kind == "keys")
        told = {"E4M3": False, "PDL": False}
        compress_kernel[(len(POSITIONS),)](**arguments(tensors, kind == "keys"), **told)
        got, want = values(tensors[6], kind), exact[6].view(-1, exact[6].shape[-1])
        off = float((got - want).abs().max() / want.abs().max())
        written = (want != before.view_as(want)).any(1)
        elsewhere = float((got - before.view_as(want))[~written].abs().max())
        ring = float((tensors[1].double() - exact[1]).abs().max())
        found[f"{kind} {cache}"] = {"off": off, "ring": ring, "elsewhere": elsewhere, "written": int(written.sum())}
print(json.dumps(found))
