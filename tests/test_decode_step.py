"""The decode step on a CPU: contract, judgement, state, what one rank of several computes, refusals, tracing."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels import glue
from capturebook.kernels.compressor.stores import store, store_keys
from capturebook.kernels.routing import combine_reference
from capturebook.kernels.sparse_mla.formats import dequantise, quantise
from capturebook.measure import own_step
from capturebook.probes.compare import clone, copy_into
from capturebook.subjects.decode_step import build, model, reference
from capturebook.subjects.decode_step.buckets import Buckets, narrowed
from capturebook.subjects.decode_step.examples import examples
from capturebook.subjects.decode_step.experts import Matrices, grouped, one_by_one, quantised
from capturebook.subjects.decode_step.glue import swiglu
from capturebook.subjects.decode_step.ops import torch_ops
from capturebook.subjects.decode_step.shapes import SIZES
from capturebook.subjects.decode_step.state import make_requests, make_state
from capturebook.subjects.decode_step.step import CALLS, FP8_TOLERANCE, TOLERANCE, starts
from capturebook.subjects.decode_step.weights import draw

SMALL = {"size": "small", "batch": 3, "context": 512, "max_context": 1024}
FORMATS = {
    "bf16": {},
    "fp8": {"cache": "fp8", "keys": "fp8", "routing": "hash", "padded": True, "indexer": "stock", "glue": "fused"}
    | {"experts": "fp8", "router": "fused"},
}


@pytest.fixture(scope="module", params=FORMATS)
def step(request):
    return build(**SMALL, **FORMATS[request.param])


def test_step_and_twin_hold_to_float64_call_after_call(step):
    for variant in ("step", "twin"):
        side = own_step.Side(step if variant == "step" else step.twin)
        found = [
            own_step.check(own_step.Variant(variant, side, side.step.fn), step, step.make_inputs(i), f"call {i}")
            for i in range(2)  # the second closes windows of both kinds
        ]
        assert all(check.ok for checks in found for check in checks), found


def test_what_is_wrong_is_judged_wrong(step):
    side = own_step.Side(step)
    side.begin()
    inputs, before = step.make_inputs(0), clone(side.state())
    output = side.call(step.fn, inputs)
    copy_into(side.state(), before)

    def judged(**changed):
        return step.check(inputs, output | changed)

    assert judged()
    streams, slots, experts = output["1.csa.streams"], output["1.csa.slots"], output["1.csa.experts"]
    assert not judged(**{"1.csa.streams": streams * 1.05})
    assert not judged(**{"1.csa.streams": streams.clone().fill_(torch.nan)})
    assert not judged(**{"1.csa.slots": slots.flip(0)})  # of other requests
    assert not judged(**{"1.csa.experts": experts[:, :1].expand_as(experts)})
    other = (experts + 1) % SIZES["small"].experts
    assert not judged(**{"1.csa.experts": other})
    worst = slots.clone()
    page = slots[0, 0] // 64 * 64
    left = sorted(set(range(int(page), int(page) + 64)) - set(slots[0].tolist()))
    worst[0] = torch.tensor(left[: slots.shape[1]])
    assert not judged(**{"1.csa.slots": worst})


def test_a_call_changes_what_its_token_belongs_to_and_nothing_else(step):
    """The first request's first call does not end a window, its second ends one of 4 and one of 128."""
    side = own_step.Side(step)
    for call, closes in ((0, False), (1, True)):
        side.begin()
        before = clone(side.state())
        side.call(step.fn, step.make_inputs(call))
        after = clone(side.state())
        assert torch.equal(after.pop("positions"), before.pop("positions") + 1)
        for name, was in before.items():
            first = side.step.state()["positions"][:1] - 1
            changed = (after[name].float() != was.float()).flatten(2).any(2) if was.dim() > 2 else None
            rows = int(changed.sum()) if changed is not None else int((after[name] != was).any(1).sum())
            kind = name.split(".")[1]
            ended = sum((int(p) % {"csa": 4, "hca": 128}.get(kind, 1)) == 0 for p in side.step.state()["positions"])
            part = name.split(".")[2]
            if part in ("window", "ring", "key_ring"):
                assert rows <= 3 and (rows == 3 or "scales" in name), name
            else:
                assert rows <= ended and (rows == ended or "scales" in name), name
                assert ended > 0 or not closes
        assert int(first) % 128 == (127 if closes else 126)


@pytest.mark.parametrize("page", [256, 64, 2])
def test_stored_rows_are_those_of_whole_pages(page):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4 * page, 512, generator=generator)
    cache = quantise(torch.zeros_like(rows), page)
    slots = torch.randperm(4 * page, generator=generator)[:5]
    wanted = torch.tensor([True, True, False, True, True])
    store(cache, slots, rows[slots], wanted)
    expected = dequantise(quantise(rows, page), slots)
    expected[~wanted] = 0
    assert torch.equal(dequantise(cache, slots), expected)
    rest = torch.ones(4 * page, dtype=torch.bool).index_fill_(0, slots[wanted], False).nonzero()[:, 0]
    assert not dequantise(cache, rest).any()
    plain = torch.zeros(4 * page, 512)
    store(plain, slots, rows[slots], wanted)
    assert torch.equal(plain[slots[wanted]], rows[slots[wanted]]) and not plain[rest].any()


def test_stored_keys_are_those_of_whole_pages():
    from capturebook.kernels.indexer.formats import quantise as quantise_keys
    from capturebook.kernels.indexer.formats import values_of

    keys = torch.randn(3, 64, 128, generator=torch.Generator().manual_seed(0))
    cache = quantise_keys(torch.zeros_like(keys))
    slots, wanted = torch.tensor([5, 64, 190]), torch.tensor([True, False, True])
    store_keys(cache, slots, keys.view(-1, 128)[slots], wanted)
    found = values_of(cache, torch.float64).view(-1, 128)
    exact = values_of(quantise_keys(keys), torch.float64).view(-1, 128)
    assert torch.equal(found[slots[wanted]], exact[slots[wanted]])
    assert int(found.any(1).sum()) == 2


def test_grouped_experts_are_the_sum_of_each():
    generator = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(size, generator=generator)

    x, up, down = normal(5, 32), normal(6, 32, 32) / 5, normal(6, 32, 16) / 4
    ids = torch.rand(5, 6, generator=generator).topk(2).indices
    ids[:, 0] = 3  # one expert that everyone wants, and others that nobody does
    ids[:, 1] = torch.tensor([0, 1, 0, 1, 0])
    weights, act = normal(5, 2), lambda both: swiglu(both, 10.0)

    def summed(rows, order):
        return combine_reference(rows, order, weights.to(rows.dtype), torch.zeros(5, 32, dtype=rows.dtype))

    arguments = (x, ids, Matrices(up), Matrices(down), act)
    exact = summed(*one_by_one(*arguments))
    assert torch.allclose(summed(*grouped(*arguments)), exact, atol=1e-5)
    fp8 = (Matrices(*quantised(up)), Matrices(*quantised(down)), act)
    x = x.bfloat16()
    got, want = summed(*grouped(x, ids, *fp8)), summed(*one_by_one(x.double(), ids, *fp8))
    assert (got - want).abs().max() <= 0.03 * want.abs().max()
    # e4m3 rounds a value by up to 2 ** -4 of it, matrices and rows, twice on their way; sums average that
    assert 0.01 < (exact - want).abs().max() / want.abs().max() <= 0.15


def test_the_gpu_takes_the_shapes_of_scaled_experts():
    """What torch says of the grouped fp8 matmul without a GPU: its checks of shapes, strides and scales."""
    rows, scale = torch.empty(12, 4096, device="meta").to(torch.float8_e4m3fn), torch.empty(12, device="meta")
    matrices = torch.empty(8, 512, 4096, device="meta").to(torch.float8_e4m3fn)
    ends = torch.empty(8, dtype=torch.int32, device="meta")
    scales = torch.empty(8, 512, device="meta")
    out = torch._scaled_grouped_mm(rows, matrices.transpose(1, 2), scale, scales, offs=ends, out_dtype=torch.bfloat16)
    assert out.shape == (12, 512)


def test_the_ranks_of_a_layer_add_up_to_it():
    """Heads, output groups and the experts' width are shared out, and a sum over ranks is all that is missing."""
    whole = replace(SIZES["small"], heads=8, groups=4, topk=8)
    weights = draw(whole, "csa", "score", 0, "cpu", torch.float32)
    requests = make_requests(2, 256, 256, 0, "cpu")
    requests.positions.copy_(torch.tensor([131, 200]))
    x = torch.randn(2, whole.hidden, generator=torch.Generator().manual_seed(1))
    tokens = torch.zeros(2, dtype=torch.long)

    def parts(shape, weights):
        state = make_state(shape, "csa", 2, 256, 0, "cpu", torch.float32, "bf16", "bf16")
        made = model.stack(shape, ["csa"], [weights], [state], requests, 256)
        (layer,) = made.layers
        out, slots = layer.attention(torch_ops(), made.lists(), x)
        routed, ids = layer.moe(torch_ops(), x, tokens)
        return out, routed, slots, ids

    out, routed, slots, ids = parts(whole, weights)
    ranks = [parts(whole.rank(4), share(weights, rank, 4)) for rank in range(4)]
    assert torch.allclose(sum(rank[0] for rank in ranks), out, atol=1e-4 * float(out.abs().max()))
    assert torch.allclose(sum(rank[1] for rank in ranks), routed, atol=1e-4 * float(routed.abs().max()))
    assert all(torch.equal(rank[2], slots) and torch.equal(rank[3], ids) for rank in ranks)


def share(weights: dict, rank: int, ranks: int) -> dict:
    """A rank's part of whole weights: rows or columns of the matmuls that are shared out."""

    def rows(name, halves=1, dim=0):
        blocks = weights[name].chunk(halves, dim)
        return torch.cat([block.chunk(ranks, dim)[rank] for block in blocks], dim)

    return weights | {
        "q_b": rows("q_b"),
        "sink": rows("sink"),
        "o_a": rows("o_a"),
        "o_b": rows("o_b", dim=1),
        "experts.up": rows("experts.up", halves=2, dim=1),
        "experts.down": rows("experts.down", dim=2),
        "shared.up": rows("shared.up", halves=2),
        "shared.down": rows("shared.down", dim=1),
    }


def test_more_heads_than_the_rank_has_change_nothing():
    options = {**SMALL, "layers": ["swa"]}
    plain, padded = build(**options), build(**options, padded=True)
    inputs = plain.make_inputs(3)
    with torch.no_grad():
        one, other = plain.fn(*inputs), padded.fn(*inputs)
    assert torch.equal(one["0.swa.streams"], other["0.swa.streams"])


def test_the_first_rows_alone_are_the_same_requests():
    """What a graph for a smaller batch runs over: views of the same buffers, and the rest left as it is."""
    step = build(**SMALL, layers=["csa", "hca"])
    side = own_step.Side(step)
    side.begin()
    streams, tokens = step.make_inputs(5)
    before = clone(side.state())
    whole, after = side.call(step.fn, (streams, tokens)), clone(side.state())
    copy_into(side.state(), before)
    with torch.no_grad():
        part = narrowed(step.fn.func, 2)(step.fn.args[0], streams[:2], tokens[:2])
    assert torch.allclose(part["1.hca.streams"].float(), whole["1.hca.streams"][:2].float(), atol=2e-2)
    assert torch.equal(part["0.csa.slots"].sort().values, whole["0.csa.slots"][:2].sort().values)
    for name, tensor in side.state().items():
        if name.endswith(("positions", "ring")):
            assert torch.equal(tensor[2:], before[name][2:]), name
            assert torch.allclose(tensor[:2].float(), after[name][:2].float(), atol=5e-2), name


def test_sizes_that_are_no_buckets_are_refused():
    step = build(**SMALL, layers=["swa"])
    for sizes in ([1, 2], [3, 1], [1, 1, 3]):
        with pytest.raises(ValueError, match="^sizes: .*; allowed: ascending, up to the stack's batch, 3$"):
            Buckets(step.fn.func, step.fn.args[0], sizes, 1024)


def test_it_is_traced_whole_and_once_while_positions_advance():
    import torch._dynamo

    step = build(**{**SMALL, "batch": 2, "layers": ["csa"]})
    frames = []
    side = own_step.Side(step)

    def backend(graph, example):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(step.fn, backend=backend, fullgraph=True, dynamic=False)
    for call in range(4):
        side.begin()
        inputs, before = step.make_inputs(call), clone(side.state())
        got = side.call(compiled, inputs)
        copy_into(side.state(), before)
        want = side.call(step.fn, inputs)
        assert torch.equal(got["0.csa.streams"], want["0.csa.streams"])
    assert len(frames) == 1
    torch._dynamo.reset()


def test_positions_stay_in_the_context():
    for batch, context in ((1, 256), (64, 8192), (5, 1000)):
        first = starts(batch, context)
        assert first.min() >= 0 and first.max() + CALLS <= context and first[0] % 128 == 126


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": "large"}, "size: 'large'; allowed: flash, small"),
        ({"layers": ["mla"]}, "layers: 'mla'; allowed: some of swa, csa, hca"),
        ({"tp": 3}, "tp: 3; allowed: a divisor of heads, 16"),
        ({"routing": "random"}, "routing: 'random'; allowed: score, hash"),
        ({"glue": "fast"}, "glue: 'fast'; allowed: eager, compiled, fused"),
        ({"cache": "fp4"}, "cache: 'fp4'; allowed: bf16, fp8"),
        ({"router": "fast"}, "router: 'fast'; allowed: torch, fused"),
        ({"experts": "fp4"}, "experts: 'fp4'; allowed: bf16, fp8"),
        ({"keys": "fp4"}, "keys: 'fp4'; allowed: bf16, fp8"),
        ({"sync": "none"}, "sync: 'none'; allowed: stream, event"),
        ({"graph_break": "end"}, "graph_break: 'end'; allowed: none, before, after_fork, between"),
        ({"context": 128}, "context: 128; allowed: 256 to max_context, 1024"),
        ({"indexer": "fast"}, "indexer: 'fast'; allowed: bounded, stock, torch"),
        ({"layers": []}, "layers: []; allowed: some of swa, csa, hca"),
        ({"kernel": "fast"}, "kernel: 'fast'; allowed: mma, simt"),
        ({"overlap": True}, "overlap: true; a CPU has no streams, allowed here: false"),
    ],
)
def test_options_are_refused_in_one_line(options, text):
    with pytest.raises(ValueError) as refused:
        build(**SMALL | options)
    assert str(refused.value) == text


def test_bf16_arithmetic_is_well_inside_the_tolerance(step):
    side = own_step.Side(step)
    side.begin()
    inputs, before = step.make_inputs(0), clone(side.state())
    output = side.call(step.fn, inputs)
    copy_into(side.state(), before)
    found = reference.errors(step.fn.func, *inputs, output)
    print(found)
    fp8 = any(name.endswith(".scale") for name in step.fn.func.layers[0].attention.weights)
    assert max(found.values()) <= (FP8_TOLERANCE if fp8 else TOLERANCE) / 1.25


def test_every_kernel_of_a_step_is_in_the_build_check():
    calls = [(example.name, str(example.config)) for example in examples(90)]
    assert len(set(calls)) == len(calls)
    kernels = {example.kernel.__name__ for example in examples(90)}
    launched = {"mma_kernel", "simt_kernel", "combine_kernel", "bounded_scores_kernel", "select_kernel", "route_kernel"}
    launched |= {"mix_experts_kernel"}
    assert kernels >= launched | {"padded_scores_kernel", "compress_kernel", *glue.KERNELS}, sorted(kernels)
