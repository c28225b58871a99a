"""The edges with whole lists, on a GPU: one split, whose kernel applies the sink by itself, on every path."""

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, pinned
from capturebook.kernels.sparse_mla.arguments import KERNELS, reads
from capturebook.kernels.sparse_mla.launch import split_count
from capturebook.kernels.sparse_mla.op import tuner_of
from kernel_cases import EMPTY_ROWS, check, edge_inputs, often, on_gpu, planned, to_fp8, to_v32

pytestmark = pytest.mark.gpu

AS = {"bf16": lambda inputs: inputs, "fp8": to_fp8, "v32": to_v32}

PATHS = [(kernel, cache) for kernel in ("mma", "simt", "gluon") for cache in AS if reads(kernel, cache)]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Fresh memory is NaN; what was pinned is put back."""
    for name in ("_tuning", "_entries"):
        monkeypatch.setattr(pinned, name, {})
    for tuner in (tuner_of(kernel, cache) for kernel in KERNELS for cache in AS if reads(kernel, cache)):
        monkeypatch.setattr(tuner, "configs", list(tuner.configs))
        monkeypatch.setattr(tuner, "cache", {})
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kernel, cache", PATHS)
def test_edges_with_whole_lists(kernel, cache):
    major, minor = torch.cuda.get_device_capability()
    if kernel == "gluon" and (major, minor) != (9, 0):
        pytest.skip("the Gluon kernels are for sm_90")
    inputs = on_gpu(often(AS[cache](edge_inputs(heads=64)), 20))
    if kernel in KERNELS:
        pinned.pin(tuner_of(kernel, cache), pinned.pinned_config(kernel, major * 10 + minor, 64, 160, cache))
    assert (planned("wgmma", inputs).splits if kernel == "gluon" else split_count(kernel, 160, 64, 112)) == 1
    out, lse = decode(*inputs.args(), kernel=kernel)
    check(inputs, (out, lse))
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"
