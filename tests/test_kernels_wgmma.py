"""The Gluon kernels in tiles of 64 heads, as their source stands, on numpy against float64, their warps as threads."""

import numpy as np
import pytest
import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.gluon_plan import WGMMA_CONFIGS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from numpy_gluon import Memory, Tensor, finish, locate, run_sources
from numpy_wgmma import async_copy, mbarrier, reinterpret, specialised, wgmma


def run(inputs, cache, splits):
    """(out, lse) of one request of 64 heads, the splits merged."""
    memory, place, programs = Memory(), [0, 0, 0], [splits, 1, 1]
    out = torch.full((splits, 64, 512), torch.nan, dtype=torch.float32 if splits > 1 else torch.bfloat16)
    lse = torch.full((splits, 64), torch.nan)
    pointers = [memory.place(tensor) for tensor in (*inputs.tensors(), out, lse)]
    gl = specialised(memory, place, programs)

    def load_length(lengths, request, width):
        return Tensor(np.int32(max(0, min(int(gl.load(lengths + request)), width))), "int32")

    def async_load(target, pointers, mask):
        mask = Tensor(np.broadcast_to(mask.values, pointers.shape), "bool")
        target.store(memory.load(pointers, mask))

    names = {
        "gl": gl,
        "finish": finish,
        "locate": locate,
        "load_length": load_length,
        "barrier": lambda: None,
        "fence_async_shared": lambda: None,
        "gdc_launch_dependents": lambda: None,
        "reinterpret": reinterpret,
        "warpgroup_mma": wgmma,
        "warpgroup_mma_wait": lambda count, deps: deps[0],
        "mbarrier": mbarrier,
        "async_copy": async_copy,
        "async_load": async_load,
    }
    kernel = run_sources(["gluon_tiles", "gluon_rows", "gluon_consume", f"gluon_{cache}"], names)
    kernel = kernel[f"gluon_{cache}_kernel"]
    widths = inputs.window_indices.shape[1], inputs.extra_indices.shape[1]
    pages = (256, 64) if cache == "fp8" else ()
    for place[0] in range(splits):
        kernel(*pointers, inputs.scale, *widths, splits, 512, 64, *pages, *WGMMA_CONFIGS[cache].kwargs.values())
    out, lse = memory.take(pointers[-2], out).float(), memory.take(pointers[-1], lse)
    if splits == 1:
        return out, lse
    weight = torch.exp(lse - torch.logaddexp(torch.logsumexp(lse, 0), inputs.sink))
    return (out * weight[..., None]).sum(0, keepdim=True), torch.logsumexp(lse, 0, keepdim=True)


@pytest.mark.parametrize(
    "cache, splits, kind, lengths",
    [("fp8", 1, "random", (70, 200)), ("fp8", 3, "random", (0, 130)), ("bf16", 2, "peaked", (128, 190))],
)
def test_against_float64(cache, splits, kind, lengths):
    """Four tiles, of which buffers come round; three splits of two tiles or one; a last tile that is nearly empty."""
    shape = dict(context=1024, topk=200, window_slots=256, extra_slots=256)
    inputs = make_inputs(3, 1, 64, holes=0.1, cache=cache, kind=kind, **shape)
    inputs.window_lengths[0], inputs.extra_lengths[0] = lengths
    out, lse = run(inputs, cache, splits)
    want, want_lse = decode_reference(*inputs.args())
    assert error(out.bfloat16(), want) <= 3e-3
    assert (lse - want_lse).abs().max() <= 1e-4
