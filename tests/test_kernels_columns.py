"""`gluon_columns_kernel`, as its source stands, on numpy against float64: what each operation means, layouts aside."""

import numpy as np
import pytest
import torch

from capturebook.kernels.sparse_mla.inputs import make_inputs
from kernel_cases import SCALE_ENDS, check, check_edges, scale_end_inputs
from numpy_gluon import Memory, Shared, Tensor, finish, language, locate, merged, mma, run_sources


def run(inputs, splits, pages=()):
    """(out, lse), the splits merged; pages: tokens a page of the two caches, none for rows of bf16."""
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
    for place[0], place[1], place[2] in np.ndindex(*programs):
        kernel(*pointers, inputs.scale, *widths, heads, *(pages or (0, 0)))
    out, lse = merged(memory.take(pointers[-2], out), memory.take(pointers[-1], lse), inputs.sink)
    return out.bfloat16(), lse


@pytest.mark.parametrize(
    "pages, heads, splits, kind",
    [((256, 64), 32, 1, "random"), ((256, 64), 16, 3, "peaked"), ((), 16, 2, "sink")],
)
def test_against_float64(pages, heads, splits, kind):
    shape = dict(context=300, window=40, topk=72, window_slots=256, extra_slots=128)
    inputs = make_inputs(5, 2, heads, holes=0.1, cache="fp8" if pages else "bf16", kind=kind, **shape)
    check(inputs, run(inputs, splits, pages), lse_tolerance=1e-4)


@pytest.mark.parametrize("pages, splits", [((256, 2), 1), ((64, 256), 2), ((), 1), ((), 3)])
def test_edges(pages, splits):
    """Zero, negative and too large lengths, padding, NaN in all slots that no list names, sinks at their limits."""
    check_edges(run, 16, pages, splits)


@pytest.mark.parametrize("splits", [1, 2])
def test_both_ends_of_the_scales(splits):
    inputs = scale_end_inputs(heads=16)
    check(inputs, run(inputs, splits, (256, 64)), **SCALE_ENDS, lse_tolerance=1e-4)
