"""V3.2's decode on a GPU: against float64, captured, compiled."""

import pytest
import torch

from capturebook.kernels.sparse_mla import error
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from capturebook.kernels.sparse_mla_v32 import decode_v32, decode_v32_reference
from v32_cases import make

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def check(inputs, got):
    want, want_lse = decode_v32_reference(*inputs)
    assert error(got[0], want) <= TOLERANCE and lse_error(got[1], want_lse) <= 1e-3


@pytest.mark.parametrize("case", ["random", "peaked", "edges"])
@pytest.mark.parametrize("heads, batch", [(8, 3), (128, 3), (128, 40)])
def test_against_float64(case, heads, batch):
    inputs = make(case, heads, batch, width=2048, slots=4000, device="cuda")
    check(inputs, decode_v32(*inputs))


def test_captured_compiled_and_both():
    inputs = make("random", 128, 4, width=2048, slots=4000, device="cuda")

    def step(*tensors):
        out, lse = decode_v32(*tensors, inputs[5])
        return out + 0.0, lse

    torch._dynamo.reset()
    for function in (step, torch.compile(step, fullgraph=True)):
        check(inputs, function(*inputs[:5]))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function(*inputs[:5])
        inputs[3].copy_(torch.randint(0, 2049, (4,)))
        for output in outputs:
            output.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(inputs, outputs)
