"""Routing on a CPU: by hand, through the operators, compiled for a GPU, refusals."""

import math

import pytest
import torch

from capturebook.kernels.routing import combine, combine_reference, route, route_reference
from capturebook.kernels.routing.examples import examples
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise


def drawn(batch=5, experts=12, active=3, hidden=1024):
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(batch, experts, generator=generator).bfloat16()
    bias = torch.randn(experts, generator=generator)
    table = torch.rand(20, experts, generator=generator).topk(active).indices.int()
    tokens = torch.randint(20, (batch,), generator=generator)
    rows = torch.randn(batch * active, hidden, generator=generator).bfloat16()
    order = torch.randperm(batch * active, generator=generator)
    shared = torch.randn(batch, hidden, generator=generator).bfloat16()
    return logits, bias, table, tokens, rows, order, shared


def test_weights_by_hand():
    logits, bias, table, tokens, *_ = drawn()
    for by_token in (False, True):
        given = (None, table) if by_token else (bias, None)
        ids, weights = route(logits, *given, tokens, 3, 1.5)
        for row in range(5):
            scores = [math.sqrt(math.log1p(math.exp(float(x)))) for x in logits[row]]
            best = sorted(range(12), key=lambda e: -scores[e] - float(bias[e]))[:3]
            wanted = table[tokens[row]].tolist() if by_token else best
            assert sorted(ids[row].tolist()) == sorted(wanted)
            total = sum(scores[e] for e in wanted)
            for place, expert in enumerate(ids[row].tolist()):
                assert float(weights[row, place]) == pytest.approx(1.5 * scores[expert] / total, rel=1e-5)
        assert [torch.equal(a, b) for a, b in zip(route_reference(logits, *given, tokens, 3, 1.5), (ids, weights))]
        torch.library.opcheck(torch.ops.capturebook.route.default, (logits, *given, tokens, 3, 1.5))


def test_the_sum_by_hand():
    _, _, _, _, rows, order, shared = drawn()
    weights = torch.rand(5, 3)
    want = shared.double()
    for row, flat in enumerate(order.tolist()):
        want[flat // 3] += float(weights[flat // 3, flat % 3]) * rows[row].double()
    assert torch.allclose(combine(rows, order, weights, shared).double(), want, rtol=2**-7, atol=2**-6)
    exact = combine_reference(rows.double(), order, weights.double(), shared.double())
    assert torch.allclose(exact, want)


def test_they_compile_without_spills():
    for example in examples(90):
        assert set(example.args) == {p.name for p in example.kernel.params}
        row = compile_row(specialise(example.kernel, example.args, example.config, 90), 90)
        assert row["fits"] and row["spills"] == row["stack"] == 0, (example.name, row)


def test_refusals():
    logits, bias, table, tokens, rows, order, shared = drawn()
    weights = torch.rand(5, 3)
    for call, text in (
        (lambda: route(logits, bias, table, tokens, 3, 1.5), "bias: given, as is table; allowed: one of the two"),
        (lambda: route(logits, bias, None, tokens, 0, 1.5), "active: 0; allowed: 1 to 12"),
        (
            lambda: route(logits.float(), bias, None, tokens, 3, 1.5),
            "logits: dtype torch.float32; allowed: torch.bfloat16",
        ),
        (lambda: route(logits, None, table, tokens, 2, 1.5), "table: shape (20, 3); allowed: [any, 2]"),
        (
            lambda: combine(rows[:, :8], order, weights, shared),
            "rows: shape (15, 8); allowed: [rows, a multiple of 1024]",
        ),
        (lambda: combine(rows, order.int(), weights, shared), "order: dtype torch.int32; allowed: torch.int64"),
    ):
        with pytest.raises(ValueError) as refused:
            call()
        assert str(refused.value) == text
