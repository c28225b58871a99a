"""Sparse MLA decode on the fp8 cache without a GPU: twin against float64, operator, inputs, pruning, pinned entries."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cosine_similarity

from capturebook.kernels.sparse_mla import decode, decode_reference, decode_twin, error, formats
from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from kernel_cases import EMPTY_ROWS, LARGEST_GROUP, LEAST_GROUP, edge_inputs, scale_end_inputs, to_fp8

SMALL = dict(batch=2, context=256, window=32, topk=48, cache="fp8")


def test_reference_dequantises_and_nothing_else():
    """The fp8 call is the bf16 call on rows that were rounded beforehand."""
    inputs = make_inputs(1, heads=8, **SMALL)
    rows = [formats.dequantise(c, torch.arange(len(c) * page)) for c, page in zip(inputs.tensors()[1:5:3], (256, 64))]
    plain = replace(inputs, window_cache=rows[0], extra_cache=rows[1])
    for got, want in zip(decode_reference(*inputs.args()), decode_reference(*plain.args())):
        assert torch.equal(got, want)


@pytest.mark.parametrize("kind", ["random", "peaked", "sink"])
@pytest.mark.parametrize("heads", [8, 128])
def test_twin_against_float64(kind, heads):
    inputs = make_inputs(1, batch=3, heads=heads, context=600, kind=kind, holes=0.1, cache="fp8")
    out, lse = decode_twin(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-4


@pytest.mark.parametrize("pages", [(256, 64), (64, 2), (2, 256)])
def test_edges_on_every_page_size(pages):
    inputs = to_fp8(edge_inputs(), *pages)
    out, lse = decode_twin(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert want.isfinite().all(), "the reference read a slot that no list names"
    assert (want[EMPTY_ROWS] == 0).all() and (want_lse[EMPTY_ROWS] == -torch.inf).all()
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-4
    same = decode_reference(*to_fp8(edge_inputs(), 256, 64).args())[0]
    assert torch.equal(want, same), "the page's size moved a row"


def test_both_ends_of_the_scales_weigh():
    inputs = scale_end_inputs()
    want, want_lse = decode_reference(*inputs.args())
    rows = formats.dequantise(inputs.window_cache, inputs.window_indices[0, :8])
    assert rows[:, LEAST_GROUP].abs().max() < 2.0**-118 and rows[:, LARGEST_GROUP].abs().max() > 2.0**121
    for group in (LEAST_GROUP, LARGEST_GROUP):
        without = inputs.q.clone()
        without[:, :, group] = 0
        changed = decode_reference(*replace(inputs, q=without).args())[1]
        assert (changed - want_lse).abs().median() > 0.05, "this group's scores do not count"
    out, lse = decode_twin(*inputs.args())
    assert lse_error(lse, want_lse) <= 1e-3
    for group in (LEAST_GROUP, LARGEST_GROUP, slice(448, 512)):
        assert error(out[:, :, group], want[:, :, group]) <= TOLERANCE


def test_operator_is_the_twin_on_a_cpu_and_passes_opcheck():
    inputs = make_inputs(2, heads=8, **SMALL)
    for kernel in ("mma", "simt"):
        for got, want in zip(decode(*inputs.args(), kernel=kernel), decode_twin(*inputs.args())):
            assert torch.equal(got, want)
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode_fp8, (*inputs.args(), "mma", "live"))


def test_operator_compiles_without_a_graph_break():
    inputs = make_inputs(3, heads=8, **SMALL)

    def step(*tensors):
        out, lse = decode(*tensors, inputs.scale)
        return out * 2, lse

    torch._dynamo.reset()
    explained = torch._dynamo.explain(step)(*inputs.tensors())
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)
    out, lse = torch.compile(step, fullgraph=True)(*inputs.tensors())
    want, want_lse = decode_reference(*inputs.args())
    assert error(out / 2, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-4


@pytest.mark.parametrize(
    "name, change, allowed",
    [
        ("extra_cache", lambda t: torch.zeros(64, 512, dtype=torch.bfloat16), "torch.uint8"),
        ("window_cache", lambda t: t[:, :149_504].contiguous(), "149760 (256)"),
        ("extra_cache", lambda t: t[:, :512].contiguous(), "37440 (64)"),
        ("window_cache", lambda t: t[0], "any"),
        ("window_cache", lambda t: torch.empty(t.numel() + 8, dtype=t.dtype)[8:].view(t.shape), "multiple of 16"),
        ("extra_cache", lambda t: torch.cat((t, t), 1)[:, : t.shape[1]], "contiguous"),
    ],
)
def test_bad_caches_are_named_in_one_line(name, change, allowed):
    inputs = make_inputs(0, heads=8, batch=2, context=1024, cache="fp8")
    arguments = {field: getattr(inputs, field) for field in inputs.__dataclass_fields__}
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError) as caught:
        decode(**arguments)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and allowed in text and "\n" not in text


def test_unknown_format():
    with pytest.raises(ValueError, match="^cache: 'int4'; allowed: bf16, fp8, v32$"):
        make_inputs(0, batch=1, heads=8, context=64, cache="int4")


def test_inputs_differ_from_those_in_bf16_by_rounding_alone():
    fp8, bf16 = (make_inputs(5, batch=4, heads=8, context=512, cache=name) for name in ("fp8", "bf16"))
    assert fp8.window_cache.shape == (4, 149_760) and fp8.extra_cache.shape == (8, 37_440)
    for name in ("q", "window_indices", "window_lengths", "extra_indices", "extra_lengths", "sink"):
        assert torch.equal(getattr(fp8, name), getattr(bf16, name))
    got, want = (decode_reference(*inputs.args())[0] for inputs in (fp8, bf16))
    assert 0.9 < cosine_similarity(got, want, dim=-1).min() and error(got, want) > 1e-3


def test_cost_by_hand():
    # 588 B a token with its index, 2052 B in and out a head; the same operations as from bf16
    cost, bf16 = (decode_cost(batch=64, heads=64, entries=64 * 640, cache=name) for name in ("fp8", "bf16"))
    assert cost.bytes == 64 * 640 * 588 + 64 * 64 * 2052 + 256 + 512 and cost.flops == bf16.flops
    # an H200, measured: 4.63 TB/s and 795 TFLOP/s give 7.0 us
    assert cost.floor(4.63e12, 795e12) * 1e6 == pytest.approx(7.0, abs=0.05)
