"""The compressor on a GPU against float64: every kind and format, captured and replayed at other positions. 20 s.

python -m pytest -m gpu tests/test_compressor_gpu.py
"""

import pytest
import torch

from capturebook.kernels.compressor import compress, compress_reference
from capturebook.kernels.compressor.inputs import KINDS, make_inputs
from capturebook.kernels.indexer.formats import values_of
from capturebook.kernels.sparse_mla.formats import dequantise

pytestmark = pytest.mark.gpu
POSITIONS = [[3, 127, 130, 255, 254], [4, 128, 131, 511, 255], [0, 383, 7, 256, 639]]


def values(cache, kind):
    """Rows of a cache of any format in float64."""
    if cache.dtype != torch.uint8:
        return cache.double().view(-1, cache.shape[-1])
    if kind == "keys":
        return values_of(cache, torch.float64).view(-1, 128)
    return dequantise(cache, torch.arange(len(cache) * KINDS[kind][3], device=cache.device))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_one_graph_at_other_positions(kind, cache):
    keys = kind == "keys"
    live = make_inputs(0, kind, POSITIONS[2], cache, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        compress(*live, keys=keys)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        compress(*live, keys=keys)
    for seed, positions in enumerate(POSITIONS):
        given = make_inputs(seed + 1, kind, positions, cache, device="cuda")
        for tensor, new in zip(live, given):
            if tensor.shape == new.shape:
                tensor.copy_(new)
        graph.replay()
        exact = [tensor.double() if tensor.is_floating_point() else tensor for tensor in given]
        exact[4] = live[4].double()
        before = values(given[6], kind)
        exact[6] = before.clone().view(-1, 64, 128) if keys else before.clone()
        compress_reference(*exact, keys=keys)
        got, want = values(live[6], kind), exact[6].view_as(before)
        assert torch.equal(live[1], exact[1].bfloat16())
        written = (want != before).any(1)
        assert torch.equal(got[~written], before[~written])
        assert int(written.sum()) == sum((p + 1) % KINDS[kind][0] == 0 for p in positions)
        error = (got - want)[written].abs().max() / want.abs().max() if written.any() else 0
        # a value at a rounding's edge may fall to the other side: one step of e4m3 is a fourteenth of the largest value
        assert error <= (1 / 13 if cache == "fp8" else 2**-8), (kind, cache, positions, float(error))
