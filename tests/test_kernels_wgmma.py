"""The Gluon kernels in tiles of 64 heads, as their source stands, on numpy against float64, their warps as threads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from capturebook.kernels.sparse_mla.gluon_plan import WGMMA_CONFIGS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from kernel_cases import SCALE_ENDS, check, check_edges, scale_end_inputs
from numpy_gluon import Memory, Tensor, finish, locate, merged, run_sources
from numpy_wgmma import async_copy, fence, mbarrier, reinterpret, specialised, wgmma

SMALL = dict(context=1024, topk=200, window_slots=256, extra_slots=256)


def run(inputs, splits, pages=()):
    """(out, lse), the splits merged; pages: tokens a page of the two caches, none for rows of bf16."""
    batch, heads, _ = inputs.q.shape
    memory, place, programs = Memory(), [0, 0, 0], [splits, heads // 64, batch]
    kind = torch.float16 if splits > 1 else torch.bfloat16
    out = torch.full((batch, splits, heads, 512), torch.nan, dtype=kind)
    lse, units = (torch.full((*out.shape[:3], *more), torch.nan) for more in ((), (8,)))
    pointers = [memory.place(tensor) for tensor in (*inputs.tensors(), out, lse, units)]
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
        "fence_async_shared": fence,
        "gdc_launch_dependents": lambda: None,
        "reinterpret": reinterpret,
        "warpgroup_mma": wgmma,
        "warpgroup_mma_wait": lambda count, deps: deps[0],
        "mbarrier": mbarrier,
        "async_copy": async_copy,
        "async_load": async_load,
    }
    cache = "fp8" if pages else "bf16"
    kernel = run_sources(["gluon_tiles", "gluon_rows", "gluon_units", "gluon_consume", f"gluon_{cache}"], names)
    kernel = kernel[f"gluon_{cache}_kernel"]
    widths = inputs.window_indices.shape[1], inputs.extra_indices.shape[1]
    for place[0], place[1], place[2] in np.ndindex(*programs):
        kernel(*pointers, inputs.scale, *widths, splits, 512, heads, *pages, *WGMMA_CONFIGS[cache].kwargs.values())
    out, lse, units = map(memory.take, pointers[-3:], (out, lse, units))
    out, lse = merged(out, lse, inputs.sink, units)
    return out.bfloat16(), lse


@pytest.mark.parametrize(
    "pages, splits, kind, lengths",
    [((256, 64), 1, "random", (70, 200)), ((256, 64), 3, "random", (0, 130)), ((), 2, "peaked", (128, 190))],
)
def test_against_float64(pages, splits, kind, lengths):
    """Four tiles, of which buffers come round; three splits of two tiles or one; a last tile that is nearly empty."""
    inputs = make_inputs(3, 1, 64, holes=0.1, cache="fp8" if pages else "bf16", kind=kind, **SMALL)
    inputs.window_lengths[0], inputs.extra_lengths[0] = lengths
    check(inputs, run(inputs, splits, pages), lse_tolerance=1e-4)


@pytest.mark.parametrize("pages", [(256, 64), ()])
def test_two_tiles_of_heads(pages):
    inputs = make_inputs(4, 1, 128, 300, topk=72, window_slots=256, extra_slots=128, cache="fp8" if pages else "bf16")
    check(inputs, run(inputs, 2, pages), lse_tolerance=1e-4)


@pytest.mark.parametrize("pages, splits", [((256, 2), 1), ((64, 256), 2), ((), 1), ((), 3)])
def test_edges(pages, splits):
    """Zero, negative and too large lengths, padding, NaN in all slots that no list names, sinks at their limits."""
    check_edges(run, 64, pages, splits)


@pytest.mark.parametrize("splits", [1, 2])
def test_both_ends_of_the_scales(splits):
    inputs = scale_end_inputs(heads=64)
    check(inputs, run(inputs, splits, (256, 64)), **SCALE_ENDS, lse_tolerance=1e-4)


@pytest.mark.parametrize("pages", [(256, 64), ()])
@pytest.mark.parametrize("lists", ["window", "extra", "neither"])
def test_lists_of_no_width(lists, pages):
    inputs = make_inputs(8, 2, 64, cache="fp8" if pages else "bf16", **SMALL)
    empty = inputs.window_indices[:, :0].contiguous()
    given = {"window": ("extra",), "extra": ("window",), "neither": ("window", "extra")}[lists]
    inputs = replace(inputs, **{f"{name}_indices": empty for name in given})
    check(inputs, run(inputs, 1, pages), lse_tolerance=1e-4)
