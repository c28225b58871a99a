"""What a decode step is judged by, many requests at a time, against the kernels' own references, one by one."""

import functools
import weakref

import pytest
import torch

from capturebook.kernels import indexer
from capturebook.kernels.indexer.inputs import make_inputs
from capturebook.kernels.indexer.reference import slots_of
from capturebook.kernels.sparse_mla import decode_reference
from capturebook.subjects.decode_step import reference
from capturebook.subjects.decode_step.state import LayerState
from capturebook.subjects.decode_step.step import assemble, torch_ops


@pytest.mark.parametrize("at_once", [2**30, 1])
def test_attention_of_many_requests_is_that_of_each(monkeypatch, at_once):
    """The judge's attention against the kernels' reference: padding, lengths, rows without anything, sinks."""
    monkeypatch.setattr(reference, "AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    window, extra = draw(40, 512), draw(50, 512)
    indices = [torch.randint(-1, n, (4, w), generator=generator, dtype=torch.int32) for n, w in ((40, 6), (50, 9))]
    lengths = [torch.tensor([6, 0, 3, 1], dtype=torch.int32), torch.tensor([9, 0, 0, 4], dtype=torch.int32)]
    sink = torch.tensor([0.3, torch.inf, -torch.inf], dtype=torch.float64)
    tensors = (window, indices[0], lengths[0], extra, indices[1], lengths[1], sink)
    q = draw(4, 3, 512)
    got, want = (of(q, *tensors, 512**-0.5) for of in (reference.attend, decode_reference))
    assert torch.allclose(got[0], want[0], rtol=1e-12, atol=1e-12) and torch.allclose(got[1], want[1], rtol=1e-12)
    assert not got[0][1].any() and bool(torch.isneginf(got[1][1]).all())


@pytest.mark.parametrize("at_once", [2**30, 1])
@pytest.mark.parametrize("key_format", ["bf16", "fp8"])
def test_selections_of_many_requests_are_judged_as_each_is(monkeypatch, at_once, key_format):
    """The judge's gap against the kernels' error metric: right selections, and every way of being wrong."""
    monkeypatch.setattr(reference, "AT_ONCE", at_once)
    inputs = make_inputs(3, 4, 1024, 2048, key_format=key_format)
    q, weights, keys, table, lengths = inputs.args()
    lengths = torch.tensor([int(lengths[0]), 40, 0, 64], dtype=torch.int32)
    args, scores = (q, weights, keys, table, lengths), indexer.scores_reference(q, weights, keys, table, lengths)
    right = indexer.select_twin(*args, 64)

    def changed(*changes):
        found = right.clone()
        for row, column, value in changes:
            found[row, column] = value
        return found

    worse = next(s for s in slots_of(table, lengths, 64)[0].tolist() if s not in right[0].tolist())
    cases = {
        "right": right,
        "another order": right.roll(5, 1)[:, :64].where(right >= 0, right),
        "a worse one": changed((0, 7, worse)),
        "twice": changed((0, 7, int(right[0, 8]))),
        "nobody's": changed((0, 7, 1)),
        "none of an empty row": changed((2, 0, int(right[0, 0]))),
        "padding first": changed((1, 0, -1)),
        "too many": changed((1, 40, int(right[1, 0]))),
    }
    for name, chosen in cases.items():
        want = indexer.error(chosen, scores, table, lengths)
        assert reference.selection_gap(chosen, *args) == pytest.approx(want, abs=1e-12), name
    assert reference.selection_gap(right, *args) == 0.0 < reference.selection_gap(cases["a worse one"], *args) < 1
    nobody = torch.zeros(4, dtype=torch.int32)
    assert reference.selection_gap(torch.full_like(right, -1), *args[:4], nobody) == 0.0


def test_float64_copies_of_one_layers_caches_at_a_time(monkeypatch):
    """They are four times as large as the caches: of two layers at a long context they would not fit beside these."""
    stack = assemble(["csa", "hca"], "small", 8, "score", "bf16", "bf16", "bf16", 2, 512, 512, "cpu")
    stack.requests.positions.copy_(torch.tensor([254, 300]))
    inputs = torch.randn(2, 4, 1024, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.tensor([1, 2])
    with torch.no_grad():
        outputs = stack(torch_ops(), *inputs)
    stack.requests.positions.sub_(1)
    wide, made = LayerState.wide, []

    def one_more(state):
        assert not any(copy() is not None for copy in made), "the layer's before it are still there"
        copies = wide(state)
        made.append(weakref.ref(copies.entries))
        return copies

    monkeypatch.setattr(LayerState, "wide", one_more)
    found = reference.errors(stack, *inputs, outputs)
    assert len(made) == 2 and max(found.values()) <= 2e-2
