"""Routing on a GPU against torch ops in float64, by score and by token, many batches. A few seconds.

python -m pytest -m gpu tests/test_routing_gpu.py
"""

import pytest
import torch

from capturebook.kernels.routing import combine, combine_reference, route, route_reference

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("experts", [256, 8])
@pytest.mark.parametrize("batch", [1, 64, 257])
def test_against_float64(batch, experts):
    active = min(6, experts)
    generator = torch.Generator("cuda").manual_seed(batch)

    def normal(*size):
        return torch.randn(size, device="cuda", generator=generator)

    logits, bias = (6 * normal(batch, experts)).bfloat16(), normal(experts)
    table = torch.rand(100, experts, device="cuda", generator=generator).topk(active).indices.int()
    tokens = torch.randint(100, (batch,), device="cuda", generator=generator)
    for given in ((bias, None), (None, table)):
        ids, weights = route(logits, *given, tokens, active, 1.5)
        want, exact = route_reference(logits.double(), *given, tokens, active, 1.5)
        # in order of the experts: which comes first says nothing
        (ids, at), (want, by) = ids.sort(), want.sort()
        assert torch.equal(ids, want)
        assert torch.allclose(weights.gather(1, at).double(), exact.gather(1, by), rtol=1e-4)
    rows, shared = normal(batch * active, 4096).bfloat16(), normal(batch, 4096).bfloat16()
    order = torch.randperm(batch * active, device="cuda", generator=generator)
    weights = torch.rand(batch, active, device="cuda", generator=generator)
    got = combine(rows, order, weights, shared)
    want = combine_reference(rows.double(), order, weights.double(), shared.double())
    assert (got - want).abs().max() <= 2**-8 * want.abs().max()
