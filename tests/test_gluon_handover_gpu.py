"""Hand-overs between the warps of the Gluon kernels hold whatever the warps' speeds; the test would see a race."""

import sys

import pytest
import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.gluon_plan import WGMMA_CONFIGS, WGMMA_KERNELS, Plan
from capturebook.kernels.sparse_mla.inputs import make_inputs
from delayed_gluon import FAULTS, delayed_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
        reason="the Gluon kernels are for sm_90",
    ),
]


def outputs(kernel, cache, inputs, times):
    found = []
    for _ in range(times):
        whole = Plan(kernel, 64, (1, 1, inputs.q.shape[0]), 1, WGMMA_CONFIGS[cache])
        results = whole.results(inputs.q)
        results[0].fill_(float("nan"))
        kernel[whole.grid](**whole.arguments(inputs.tensors(), results, inputs.scale), **whole.config.all_kwargs())
        found.append(results[:2])
    torch.cuda.synchronize()
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("cache", WGMMA_KERNELS)
def test_delays_change_nothing_but_with_a_race(cache, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    inputs = make_inputs(1, 16, 64, 8192, holes=0.1, device="cuda", cache=cache)
    ((want, want_lse),) = outputs(WGMMA_KERNELS[cache], cache, inputs, 1)
    assert error(want, decode_reference(*inputs.args())[0]) <= 3e-3
    found = outputs(delayed_kernel(cache, fault, tmp_path), cache, inputs, 8)
    same = [torch.equal(out, want) and torch.equal(lse, want_lse) for out, lse in found]
    assert all(same) if fault == "none" else not all(same)
