"""`gluon_columns_kernel`, as its source stands, on numpy against float64: what each operation means, layouts aside."""

import numpy as np
import pytest
import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.inputs import make_inputs
from numpy_gluon import Memory, Shared, Tensor, finish, language, locate, mma, run_sources


def run(inputs, splits):
    """(out, lse), the splits merged."""
    batch, heads, _ = inputs.q.shape
    memory, place, programs = Memory(), [0, 0, 0], [heads // 16, splits, batch]
    out = torch.full((batch, splits, heads, 512), torch.nan, dtype=torch.float32 if splits > 1 else torch.bfloat16)
    lse = torch.full((batch, splits, heads), torch.nan)
    pointers = [memory.place(tensor) for tensor in (*inputs.tensors(), out, lse)]
    gl = language(memory, place, programs)

    def load_length(lengths, request, width):
        return Tensor(np.int32(max(0, min(int(gl.load(lengths + request)), width))), "int32")

    names = {
        "gl": gl,
        "mma_v2": mma,
        "finish": finish,
        "locate": locate,
        "load_length": load_length,
        "barrier": lambda: None,
        "gdc_launch_dependents": lambda: None,
        "reinterpret": lambda shared, kind, shape, layout: Shared(shared.values.reshape(shape), kind),
        "LOG2E": float(np.log2(np.e)),
        "DEQUANTISE": "",
    }
    kernel = run_sources(["gluon_tiles", "gluon_columns_rows", "gluon_columns"], names)["gluon_columns_kernel"]
    widths = inputs.window_indices.shape[1], inputs.extra_indices.shape[1]
    pages = (256, 64) if inputs.window_cache.dtype == torch.uint8 else (0, 0)
    for place[0], place[1], place[2] in np.ndindex(*programs):
        kernel(*pointers, inputs.scale, *widths, heads, *pages)
    out, lse = memory.take(pointers[-2], out).float(), memory.take(pointers[-1], lse)
    if splits == 1:
        return out[:, 0], lse[:, 0]
    with_sink = torch.logaddexp(torch.logsumexp(lse, 1), inputs.sink)
    return (out * torch.exp(lse - with_sink[:, None])[..., None]).sum(1), torch.logsumexp(lse, 1)


@pytest.mark.parametrize(
    "cache, heads, splits, kind", [("fp8", 32, 1, "random"), ("fp8", 16, 3, "peaked"), ("bf16", 16, 2, "sink")]
)
def test_against_float64(cache, heads, splits, kind):
    shape = dict(context=300, window=40, topk=72, window_slots=256, extra_slots=128)
    inputs = make_inputs(5, 2, heads, holes=0.1, cache=cache, kind=kind, **shape)
    out, lse = run(inputs, splits)
    want, want_lse = decode_reference(*inputs.args())
    assert error(out.bfloat16(), want) <= 3e-3
    assert (lse - want_lse).abs().max() <= 1e-4
