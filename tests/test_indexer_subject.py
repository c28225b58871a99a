"""The indexer as a subject: right while lengths grow, and what its check catches."""

import pytest
import torch

from capturebook.kernels.indexer.inputs import make_inputs
from capturebook.measure.own_step import Side, Variant, check
from capturebook.subjects import indexer

SMALL = dict(batch=3, context=4096, max_context=8192, topk=64)


@pytest.fixture
def step():
    return indexer.build(**SMALL)


def calls(step, function, number: int = 4) -> list[bool]:
    """What the step's check says of so many calls in a row, each with other inputs."""
    variant = Variant("step", Side(step), function)
    return [check(variant, step, step.make_inputs(seed), str(seed))[0].ok for seed in range(number)]


@pytest.mark.parametrize("kernel, key_format", [("stock", "bf16"), ("bounded", "bf16"), ("bounded", "fp8")])
def test_step_and_twin_are_right_while_lengths_grow(kernel, key_format):
    step = indexer.build(kernel=kernel, key_format=key_format, **SMALL)
    assert calls(step, step.fn) == [True] * 4
    assert calls(step.twin, step.twin.fn) == [True] * 4


def test_lengths_grow_in_place_and_begin_again(step):
    lengths = step.state()["lengths"]
    seen = []
    for i in range(indexer.CALLS + 1):
        step.advance(i)
        seen.append(lengths.clone())
    assert step.state()["lengths"].data_ptr() == lengths.data_ptr()
    assert all(((b - a) == 16).all() for a, b in zip(seen[:-1], seen[1:-1])), "1/64 of 1024 keys"
    assert torch.equal(seen[0], seen[-1]) and (seen[-2] <= 1024).all() and (seen[-2] >= 896).all()
    assert step.check(step.make_inputs(0), step.fn(*step.make_inputs(0)))


def test_lengths_baked_into_a_step_are_wrong_as_soon_as_they_grow(step):
    """What a graph does whose loop bounds were read on the host."""
    old = step.state()["lengths"].clone()
    step.advance(0)

    def baked(q, weights):
        lengths = step.state()["lengths"]
        now = lengths.clone()
        lengths.copy_(old - 16 * indexer.CALLS)
        slots = step.fn(q, weights)
        lengths.copy_(now)
        return slots

    assert calls(step, baked) == [False] * 4


def test_a_selection_that_lacks_a_key_or_has_it_twice_is_wrong(step):
    def lacks_the_best(q, weights):
        slots = step.fn(q, weights)  # sorted: torch.topk on a CPU
        slots[1, 0] = step.twin.fn(q, -weights)[1, 0]
        return slots

    def twice(q, weights):
        slots = step.fn(q, weights)
        slots[2, 5] = slots[2, 6]
        return slots

    assert calls(step, lacks_the_best) == calls(step, twice) == [False] * 4


def test_options_that_cannot_be_are_one_line():
    with pytest.raises(ValueError, match="^kernel: 'mma'; allowed: stock, bounded$"):
        indexer.build(kernel="mma")
    with pytest.raises(ValueError, match="^context: 8192; allowed: 4 to max_context, 4096$"):
        indexer.build(context=8192, max_context=4096)


def test_full_lengths_are_all_keys_of_the_context_and_change_nothing_else():
    shape = dict(seed=3, batch=4, context=4096, max_context=8192)
    near, full = make_inputs(**shape), make_inputs(**shape, lengths="full")
    assert full.lengths.tolist() == [1024] * 4 and (near.lengths < 1024).any() and (near.lengths >= 896).all()
    assert torch.equal(near.q, full.q) and torch.equal(near.weights, full.weights)
    assert not full.keys[full.page_table[:, :16].long()].isnan().any() and near.keys[1:].isnan().any()
    with pytest.raises(ValueError, match="^lengths: 'long'; allowed: near, full$"):
        make_inputs(**shape, lengths="long")
    step = indexer.build(**SMALL, lengths=["full", "near"], key_format=["fp8", "bf16"])
    assert step.state()["lengths"].tolist() == [1024] * 3 and calls(step, step.fn, 1) == [True]
