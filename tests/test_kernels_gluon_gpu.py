"""The Gluon kernels on a GPU with wgmma against float64: data, edges, scales, big caches, capture, compilation."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.gluon_op import decode_gluon_bf16, decode_gluon_fp8
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from kernel_cases import EMPTY_ROWS, LARGEST_GROUP, LEAST_GROUP, edge_inputs, replays, scale_end_inputs, to_fp8

pytestmark = pytest.mark.gpu

KINDS = ("random", "peaked", "sink")
FP8 = dict(device="cuda", cache="fp8")
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


def check(inputs, got, what="", groups=(slice(None),), tolerance=TOLERANCE):
    out, lse = got
    want, want_lse = decode_reference(*inputs.args())
    for group in groups:
        found = error(out[:, :, group], want[:, :, group])
        assert found <= tolerance, f"{what}: {found}"
    assert lse_error(lse, want_lse) <= 1e-3, what


def on_gpu(inputs):
    return replace(inputs, **{f: getattr(inputs, f).cuda() for f in inputs.__dataclass_fields__ if f != "scale"})


@pytest.mark.parametrize(
    "batch, heads", [(1, 64), (3, 128), (32, 64), (33, 64), (64, 64), (66, 64), (70, 128), (200, 64)]
)
@pytest.mark.parametrize("cache", FORMATS)
def test_batches_and_their_splits(cache, batch, heads):
    shape = dict(batch=batch, heads=heads, context=4096, holes=0.05, device="cuda", cache=cache)
    for kind in KINDS:
        inputs = make_inputs(batch, kind=kind, **shape)
        check(inputs, GLUON[cache](*inputs.args()), kind)


@pytest.mark.parametrize("window, topk", [(1, 64), (64, 1), (65, 127), (128, 1024), (128, 2048)])
@pytest.mark.parametrize("cache", FORMATS)
def test_widths_of_the_lists(cache, window, topk):
    """Tiles that are not full, one tile more or less than a whole number a split."""
    shape = dict(heads=64, context=8192, window=window, topk=topk, holes=0.02, device="cuda", cache=cache)
    for batch in (2, 150):
        inputs = make_inputs(7, batch=batch, **shape)
        check(inputs, GLUON[cache](*inputs.args()), f"batch {batch}")


@pytest.mark.parametrize("lists", ["window", "extra", "neither"])
@pytest.mark.parametrize("cache", FORMATS)
def test_lists_of_no_width(cache, lists):
    inputs = make_inputs(8, batch=4, heads=64, context=2048, device="cuda", cache=cache)
    empty = inputs.window_indices[:, :0].contiguous()
    if lists != "window":
        inputs = replace(inputs, window_indices=empty)
    if lists != "extra":
        inputs = replace(inputs, extra_indices=empty)
    check(inputs, GLUON[cache](*inputs.args()))


@pytest.mark.parametrize("heads, pages", [(64, ()), (64, (256, 64)), (64, (256, 2)), (128, (64, 256))])
def test_edges(heads, pages):
    """Zero, negative and too large lengths, padding, NaN in all slots that no list names, sinks at their limits."""
    inputs = on_gpu(to_fp8(edge_inputs(heads=heads), *pages) if pages else edge_inputs(heads=heads))
    out, lse = (decode_gluon_fp8 if pages else decode_gluon_bf16)(*inputs.args())
    check(inputs, (out, lse))
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"


def test_both_ends_of_the_scales():
    inputs = scale_end_inputs(heads=64, device="cuda")
    # 64 values of 30 tokens, not 512 of 640, average little out: bf16 rounds weights and output by 2^-9 each at most
    groups = (LEAST_GROUP, LARGEST_GROUP, slice(448, 512))
    check(inputs, decode_gluon_fp8(*inputs.args()), groups=groups, tolerance=2**-8)


def test_nan_in_a_row_that_is_read_reaches_the_output():
    inputs = make_inputs(10, batch=4, heads=64, context=2048, **FP8)
    row = int(inputs.window_indices[1, 0])
    inputs.window_cache[row // 256, (row % 256) * 576] = 0x7F  # NaN as e4m3
    out, _ = decode_gluon_fp8(*inputs.args())
    assert out[1].isnan().any() and not out[[0, 2, 3]].isnan().any()


@pytest.mark.parametrize("which", ["window", "extra"])
@pytest.mark.parametrize("cache, row_bytes", [("bf16", 1024), ("fp8", 585)])
def test_cache_of_more_than_2_to_the_31_bytes(cache, row_bytes, which):
    slots = 2**22
    if torch.cuda.mem_get_info()[0] < 16e9:
        pytest.skip("needs 16 GB of free GPU memory")
    shape = {f"{which}_slots": slots, "device": "cuda", "cache": cache}
    inputs = make_inputs(9, batch=4, heads=64, context=8192, **shape)
    indices = getattr(inputs, f"{which}_indices").clone()
    width = indices.shape[1]
    across = 2**31 // row_bytes
    indices[0] = torch.arange(slots - width, slots)  # past 2^31 bytes
    indices[1] = torch.arange(across - width // 2, across + width // 2)  # across them
    inputs = replace(inputs, **{f"{which}_indices": indices})
    assert getattr(inputs, f"{which}_cache").nbytes > 2**31
    check(inputs, GLUON[cache](*inputs.args()))


@pytest.mark.parametrize("batch, compiled", [(32, False), (132, False), (32, True)])
@pytest.mark.parametrize("cache", FORMATS)
def test_captured_once_and_replayed_with_other_lengths(cache, batch, compiled):
    """One graph for all lengths, short ones and none included; under torch.compile one graph without a break."""
    shape = dict(batch=batch, heads=64, context=2048, device="cuda", cache=cache)
    static = make_inputs(99, **shape)
    fresh = [make_inputs(seed, kind=kind, **shape) for seed, kind in enumerate(KINDS)]
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


@pytest.mark.parametrize("cache", FORMATS)
def test_operator_checks(cache):
    inputs = make_inputs(2, batch=2, heads=64, context=256, device="cuda", cache=cache)
    operator = getattr(torch.ops.capturebook, f"sparse_mla_decode_gluon_{cache}")
    torch.library.opcheck(operator, inputs.args(), atol=2e-3, rtol=2e-2)
