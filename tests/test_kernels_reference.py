"""Sparse MLA decode on a CPU: reference by hand, twin against reference, operator, inputs, cost, pinned entries."""

import math

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, decode_twin, error
from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.kernels.sparse_mla.inputs import EXTRA_PAGE, WINDOW_PAGE, make_inputs
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from kernel_cases import EMPTY_ROWS, edge_inputs

LN3, LN4 = math.log(3), math.log(4)


def hand_case(dtype):
    """One head, two tokens with weights 3 and 1, a sink of weight 4; entries that must not count all around them."""
    nan = torch.nan
    return dict(
        q=torch.tensor([[[1.0, 0.0]]], dtype=dtype),
        window_cache=torch.tensor([[nan, nan], [LN3, 8.0]], dtype=dtype),
        window_indices=torch.tensor([[-1, 1, 0]], dtype=torch.int32),
        window_lengths=torch.tensor([2], dtype=torch.int32),
        extra_cache=torch.tensor([[0.0, 16.0], [nan, nan]], dtype=dtype),
        extra_indices=torch.tensor([[0, 1]], dtype=torch.int32),
        extra_lengths=torch.tensor([1], dtype=torch.int32),
        sink=torch.tensor([LN4]),
        scale=1.0,
    )


def test_reference_by_hand():
    out, lse = decode_reference(**hand_case(torch.float64))
    # (3 * [ln 3, 8] + 1 * [0, 16]) / (3 + 1 + 4)
    assert torch.allclose(out, torch.tensor([[[3 * LN3 / 8, 5.0]]], dtype=torch.float64), atol=1e-6)
    assert torch.allclose(lse, torch.tensor([[LN4]], dtype=torch.float64), atol=1e-6)


def test_twin_by_hand():
    out, lse = decode_twin(**hand_case(torch.float32))
    assert torch.allclose(out, torch.tensor([[[3 * LN3 / 8, 5.0]]]), atol=1e-5)
    assert torch.allclose(lse, torch.tensor([[LN4]]), atol=1e-6)


@pytest.mark.parametrize("kind", ["random", "peaked", "sink"])
@pytest.mark.parametrize("heads", [8, 128])
def test_twin_against_float64(kind, heads):
    inputs = make_inputs(1, batch=3, heads=heads, context=600, kind=kind, holes=0.1)
    out, lse = decode_twin(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    assert error(out, want) <= TOLERANCE
    assert lse_error(lse, want_lse) <= 1e-4


def test_kinds_are_what_they_say():
    """Peaked: some heads give one token most of the weight. Sink: it takes nearly all of it."""
    peaked = make_inputs(1, batch=2, heads=16, context=8192, kind="peaked")
    random, sink = (make_inputs(1, batch=2, heads=16, context=8192, kind=kind) for kind in ("random", "sink"))
    out = {name: decode_reference(*i.args())[0].norm(dim=-1) for name, i in (("random", random), ("sink", sink))}
    target = peaked.window_cache[peaked.window_indices[:, 0].long()].double()
    share = torch.nn.functional.cosine_similarity(decode_reference(*peaked.args())[0], target[:, None, :], dim=-1)
    assert share.max() > 0.99 and share.min() < 0.9
    assert (out["sink"] < 0.05 * out["random"]).all()


def test_edges():
    inputs = edge_inputs()
    out, lse = decode_twin(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert want.isfinite().all(), "the reference read a slot that no list names"
    assert (want[EMPTY_ROWS] == 0).all() and (want_lse[EMPTY_ROWS] == -torch.inf).all()
    assert (want[:, 0] == 0).all(), "a sink of +inf takes everything"
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-4
    # request 2 has one token: every head's output is that token, scaled by sigmoid(score - sink)
    token = inputs.extra_cache[inputs.extra_indices[2, 0].long()].double()
    scale = torch.sigmoid(inputs.q[2].double() @ token * inputs.scale - inputs.sink.double())
    assert error(want[2], scale[:, None] * token) < 1e-12


def test_no_lists_at_all():
    base = make_inputs(0, batch=2, heads=8, context=64)
    nothing = torch.empty(2, 0, dtype=torch.int32)
    out, lse = decode(
        base.q, base.window_cache, nothing, base.window_lengths, base.extra_cache, nothing, *base.args()[6:]
    )
    assert (out == 0).all() and (lse == -torch.inf).all()


def test_error_metric():
    reference = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    assert error(reference, reference) == 0
    assert error(reference + torch.tensor([[[0.0, 0.5], [0.0, 0.0]]]), reference) == pytest.approx(0.1)
    assert error(reference + torch.tensor([[[0.0, 0.0], [0.0, 1e-9]]]), reference) == math.inf
    assert error(torch.full_like(reference, torch.nan), reference) == math.inf
    assert lse_error(torch.tensor([-torch.inf, 1.0]), torch.tensor([-torch.inf, 1.5])) == 0.5
    assert lse_error(torch.tensor([torch.inf]), torch.tensor([-torch.inf])) == math.inf
    assert lse_error(torch.tensor([torch.nan]), torch.tensor([1.0])) == math.inf


def test_operator_is_the_twin_on_a_cpu_and_passes_opcheck():
    inputs = make_inputs(2, batch=2, heads=8, context=256, window=32, topk=48)
    for kernel in ("mma", "simt"):
        out, lse = decode(*inputs.args(), kernel=kernel)
        twin_out, twin_lse = decode_twin(*inputs.args())
        assert torch.equal(out, twin_out) and torch.equal(lse, twin_lse)
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode, (*inputs.args(), "mma", "live"))


def test_operator_compiles_without_a_graph_break():
    inputs = make_inputs(3, batch=2, heads=8, context=256, window=32, topk=48)

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
        ("q", lambda t: t.float(), "torch.bfloat16"),
        ("q", lambda t: t[:, :, :256], "512"),
        ("window_indices", lambda t: t.long(), "torch.int32"),
        ("extra_indices", lambda t: t[:1], "[2, any]"),
        ("extra_lengths", lambda t: t[:, None], "[2]"),
        ("sink", lambda t: t[:4], "[8]"),
        ("window_cache", lambda t: torch.cat((t, t), 1)[:, ::2], "contiguous"),
    ],
)
def test_bad_arguments_are_named_in_one_line(name, change, allowed):
    inputs = make_inputs(0, batch=2, heads=8, context=64)
    arguments = {field: getattr(inputs, field) for field in inputs.__dataclass_fields__}
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError) as caught:
        decode(**arguments)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and allowed in text and "\n" not in text


def test_unknown_kernel_and_kind():
    with pytest.raises(ValueError, match="kernel: 'fast'; allowed: mma, simt"):
        decode(*make_inputs(0, batch=1, heads=8, context=64).args(), kernel="fast")
    with pytest.raises(ValueError, match="kind: 'flat'; allowed: random, peaked, sink"):
        make_inputs(0, batch=1, heads=8, context=64, kind="flat")
    with pytest.raises(ValueError, match="extra_slots: 100; allowed: a multiple of 64"):
        make_inputs(0, batch=1, heads=8, context=64, extra_slots=100)


def test_inputs_follow_the_seed():
    first, again, other = (make_inputs(seed, batch=16, heads=8, context=1024) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(first.tensors(), again.tensors()))
    assert all(not torch.equal(a, b) for a, b in zip(first.tensors(), other.tensors()))
    assert all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(first.tensors(), other.tensors()))


@pytest.mark.parametrize("context", [1, 100, 1024, 8192])
def test_inputs_are_bounded_by_the_context(context):
    inputs = make_inputs(4, batch=9, heads=8, context=context)
    assert inputs.window_indices.shape == (9, 128) and inputs.extra_indices.shape == (9, 512)
    for indices, lengths, cache, longest in (
        (inputs.window_indices, inputs.window_lengths, inputs.window_cache, min(128, context)),
        (inputs.extra_indices, inputs.extra_lengths, inputs.extra_cache, min(512, context // 4)),
    ):
        assert lengths.max() <= longest and lengths.min() >= longest - longest // 8
        for row, length in zip(indices, lengths.tolist()):
            chosen = row[:length]
            assert (row[length:] == -1).all() and (chosen >= 0).all() and (chosen < len(cache)).all()
            assert chosen.unique().numel() == length, "a token was selected twice"
    window = inputs.window_indices[:, 0] // WINDOW_PAGE
    last = inputs.window_indices.gather(1, inputs.window_lengths[:, None].long() - 1)[:, 0] // WINDOW_PAGE
    assert torch.equal(window, last), "a window crosses its page"
    assert len(inputs.extra_cache) % EXTRA_PAGE == 0


def test_cost_by_hand():
    # batch 64, 64 heads, 640 tokens each: 2 * 64 * 64 * 640 * 1024 operations; 1028 B a token, 2052 B in and out a head
    cost = decode_cost(batch=64, heads=64, entries=64 * 640)
    assert cost.flops == 5_368_709_120
    assert cost.bytes == 64 * 640 * 1028 + 64 * 64 * 2052 + 256 + 512
    # an H200, measured: 4.63 TB/s and 795 TFLOP/s give 10.9 us, bound by bytes
    assert cost.floor(4.63e12, 795e12) * 1e6 == pytest.approx(10.9, abs=0.05)
