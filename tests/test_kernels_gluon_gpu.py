"""The Gluon kernels on a GPU with wgmma against float64: data, edges, scales, big caches, capture, compilation.

Every call says which kernel it is meant for, "columns" or "wgmma", and is refused if the plan has another.
"""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.gluon_op import decode_gluon_bf16, decode_gluon_fp8
from capturebook.kernels.sparse_mla.inputs import make_inputs
from kernel_cases import (
    BATCH_OF,
    EMPTY_ROWS,
    SCALE_ENDS,
    check,
    edge_inputs,
    first,
    often,
    on_gpu,
    planned,
    replays,
    scale_end_inputs,
    to_fp8,
)

pytestmark = pytest.mark.gpu

KINDS = ("random", "peaked", "sink")
GLUON = {"bf16": decode_gluon_bf16, "fp8": decode_gluon_fp8}


@pytest.fixture(autouse=True)
def wgmma():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the Gluon kernels are for sm_90")


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    """What torch.empty returns is filled with NaN: outputs and partial results are poisoned before every call."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def gluon(kernel, cache, inputs):
    planned(kernel, inputs)
    return GLUON[cache](*inputs.args())


@pytest.mark.parametrize(
    "kernel, batch, heads",
    [("columns", batch, 64) for batch in (1, 3, 8)]
    + [("wgmma", batch, 64) for batch in (9, 32, 33, 64, 66, 200)]
    + [("wgmma", batch, 128) for batch in (3, 70)],
)
@pytest.mark.parametrize("cache", FORMATS)
def test_batches_and_their_splits(cache, kernel, batch, heads):
    shape = dict(batch=batch, heads=heads, context=4096, holes=0.05, device="cuda", cache=cache)
    for kind in KINDS:
        inputs = make_inputs(batch, kind=kind, **shape)
        check(inputs, gluon(kernel, cache, inputs), kind)


@pytest.mark.parametrize(
    "window, topk, few",
    [
        (1, 64, "columns"),
        (64, 1, "columns"),
        (65, 127, "columns"),
        (129, 511, "columns"),
        (128, 1024, "wgmma"),
        (128, 2048, "wgmma"),
    ],
)
@pytest.mark.parametrize("cache", FORMATS)
def test_widths_of_the_lists(cache, window, topk, few):
    """Tiles that are not full, one tile more or less than a whole number a split."""
    shape = dict(heads=64, context=8192, window=window, topk=topk, holes=0.02, device="cuda", cache=cache)
    for kernel, batch in ((few, 2), ("wgmma", 9), ("wgmma", 150)):
        inputs = make_inputs(7, batch=batch, **shape)
        check(inputs, gluon(kernel, cache, inputs), f"batch {batch}")


@pytest.mark.parametrize("kernel", BATCH_OF)
@pytest.mark.parametrize("lists", ["window", "extra", "neither"])
@pytest.mark.parametrize("cache", FORMATS)
def test_lists_of_no_width(cache, lists, kernel):
    inputs = make_inputs(8, batch=BATCH_OF[kernel], heads=64, context=2048, device="cuda", cache=cache)
    empty = inputs.window_indices[:, :0].contiguous()
    if lists != "window":
        inputs = replace(inputs, window_indices=empty)
    if lists != "extra":
        inputs = replace(inputs, extra_indices=empty)
    check(inputs, gluon(kernel, cache, inputs))


@pytest.mark.parametrize(
    "kernel, heads, times, pages",
    [("columns", 64, 1, pages) for pages in ((), (256, 64), (256, 2), (64, 256))]
    + [("wgmma", 64, 2, pages) for pages in ((), (256, 64), (256, 2))]
    + [("wgmma", 128, 1, pages) for pages in ((), (64, 256))],
)
def test_edges(kernel, heads, times, pages):
    """Zero, negative and too large lengths, padding, NaN in all slots that no list names, sinks at their limits.

    Lists in splits; whole ones: test_kernels_edges_gpu.py.
    """
    inputs = edge_inputs(heads=heads)
    inputs = on_gpu(often(to_fp8(inputs, *pages) if pages else inputs, times))
    assert planned(kernel, inputs).splits > 1
    out, lse = gluon(kernel, "fp8" if pages else "bf16", inputs)
    check(inputs, (out, lse))
    empty = [8 * time + row for time in range(times) for row in EMPTY_ROWS]
    assert (out[empty] == 0).all() and (lse[empty] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"


@pytest.mark.parametrize("kernel, times", [("columns", 1), ("wgmma", 4)])
def test_both_ends_of_the_scales(kernel, times):
    inputs = often(scale_end_inputs(heads=64, device="cuda"), times)
    check(inputs, gluon(kernel, "fp8", inputs), **SCALE_ENDS)


@pytest.mark.parametrize("kernel", BATCH_OF)
def test_nan_in_a_row_that_is_read_reaches_the_output(kernel):
    batch = BATCH_OF[kernel]
    inputs = make_inputs(10, batch=batch, heads=64, context=2048, device="cuda", cache="fp8")
    row = int(inputs.window_indices[1, 0])
    inputs.window_cache[row // 256, (row % 256) * 576] = 0x7F  # NaN as e4m3
    out, _ = gluon(kernel, "fp8", inputs)
    assert out.isnan().flatten(1).any(1).tolist() == [request == 1 for request in range(batch)]


@pytest.mark.parametrize("which", ["window", "extra"])
@pytest.mark.parametrize("cache, row_bytes", [("bf16", 1024), ("fp8", 585)])
def test_cache_of_more_than_2_to_the_31_bytes(cache, row_bytes, which):
    """One cache for both kernels: filling it takes longer than they do."""
    slots = 2**22
    if torch.cuda.mem_get_info()[0] < 16e9:
        pytest.skip("needs 16 GB of free GPU memory")
    shape = {f"{which}_slots": slots, "device": "cuda", "cache": cache}
    inputs = make_inputs(9, batch=BATCH_OF["wgmma"], heads=64, context=8192, **shape)
    indices = getattr(inputs, f"{which}_indices").clone()
    width = indices.shape[1]
    across = 2**31 // row_bytes
    indices[0] = torch.arange(slots - width, slots)  # past 2^31 bytes
    indices[1] = torch.arange(across - width // 2, across + width // 2)  # across them
    inputs = replace(inputs, **{f"{which}_indices": indices})
    assert getattr(inputs, f"{which}_cache").nbytes > 2**31
    for kernel, batch in BATCH_OF.items():
        few = first(inputs, batch)
        check(few, gluon(kernel, cache, few), kernel)


@pytest.mark.parametrize(
    "kernel, batch, compiled",
    [("columns", 8, False), ("columns", 8, True), ("wgmma", 32, False), ("wgmma", 132, False), ("wgmma", 32, True)],
)
@pytest.mark.parametrize("cache", FORMATS)
def test_captured_once_and_replayed_with_other_lengths(cache, kernel, batch, compiled):
    """One graph for all lengths, short ones and none included; under torch.compile one graph without a break."""
    shape = dict(batch=batch, heads=64, context=2048, device="cuda", cache=cache)
    static = make_inputs(99, **shape)
    fresh = [make_inputs(seed, kind=kind, **shape) for seed, kind in enumerate(KINDS)]
    planned(kernel, static)
    generator = torch.Generator("cuda").manual_seed(5)
    for index, inputs in enumerate(fresh):
        for lengths, width in ((inputs.window_lengths, 128), (inputs.extra_lengths, 512)):
            lengths.copy_(torch.randint(0, width + 1, (batch,), device="cuda", generator=generator))
            lengths[index::5] = 0

    def step(*tensors):
        out, lse = GLUON[cache](*tensors, static.scale)
        return out + 0.0, lse

    if compiled:
        torch._dynamo.reset()
        explained = torch._dynamo.explain(step)(*static.tensors())
        assert (explained.graph_count, explained.graph_break_count) == (1, 0)
        step = torch.compile(step, fullgraph=True)
    for inputs, outputs in replays(step, static, fresh):
        check(inputs, outputs)


@pytest.mark.parametrize("kernel", BATCH_OF)
@pytest.mark.parametrize("cache", FORMATS)
def test_operator_checks(cache, kernel):
    inputs = make_inputs(2, batch=BATCH_OF[kernel], heads=64, context=256, device="cuda", cache=cache)
    planned(kernel, inputs)
    operator = getattr(torch.ops.capturebook, f"sparse_mla_decode_gluon_{cache}")
    torch.library.opcheck(operator, inputs.args(), atol=2e-3, rtol=2e-2)
