"""The decode calls of other layers and models on a GPU, with pinned tunings, against float64."""

import pytest
import torch

from capturebook.kernels.sparse_mla import decode
from capturebook.kernels.sparse_mla import pinned as pinned_module
from capturebook.kernels.sparse_mla.arguments import KERNELS
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.pinned import pin_entry, pinned_entry
from capturebook.kernels.sparse_mla.shapes import SHAPES
from kernel_cases import AUTO, auto_inputs, check, check_auto_takes

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Fresh memory is NaN; configurations, splits and tuning results of all autotuners are put back."""
    monkeypatch.setattr(pinned_module, "_tuning", {})
    monkeypatch.setattr(pinned_module, "_entries", {})
    for kernel in KERNELS:
        for cache in FORMATS:
            monkeypatch.setattr(tuner_of(kernel, cache), "configs", list(tuner_of(kernel, cache).configs))
            monkeypatch.setattr(tuner_of(kernel, cache), "cache", {})
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def pinned(kernel, cache, heads, batch):
    major, minor = torch.cuda.get_device_capability()
    pin_entry(tuner_of(kernel, cache), pinned_entry(kernel, major * 10 + minor, heads, batch, cache))


@pytest.mark.parametrize("kernel, cache", [("mma", "fp8"), ("mma", "bf16"), ("simt", "fp8")])
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if not shape.cache])
def test_shapes(name, kernel, cache):
    shape = SHAPES[name]
    for batch, context in ((1, 8192), (20, 2048)):
        heads = shape.heads or 64
        pinned(kernel, cache, heads, batch)
        for kind in ("random", "peaked", "sink"):
            lists = shape.inputs(context)
            inputs = make_inputs(batch, batch, heads, kind=kind, cache=cache, holes=0.05, device="cuda", **lists)
            check(inputs, decode(*inputs.args(), kernel=kernel), (batch, kind))


@pytest.mark.parametrize("name, context, batches", AUTO)
@pytest.mark.parametrize("cache", FORMATS)
def test_auto_with_every_kernel_that_it_has_for_the_lists(cache, name, context, batches):
    for batch, meant in batches.items():
        for kind in ("random", "peaked", "sink"):
            inputs = auto_inputs(name, context, batch, kind=kind, cache=cache, holes=0.05, device="cuda")
            check_auto_takes(meant, inputs)
            check(inputs, decode(*inputs.args(), kernel="auto"), (batch, kind))


@pytest.mark.parametrize("heads", [8, 16, 32])
def test_local_heads_without_padding_in_hca_of_a_long_context(heads):
    pinned("mma", "fp8", heads, 2)
    lists = SHAPES["hca"].inputs(131_072)
    assert lists["topk"] == 1024
    inputs = make_inputs(heads, 2, heads, cache="fp8", device="cuda", **lists)
    out, lse = decode(*inputs.args())
    assert out.shape == (2, heads, 512)
    check(inputs, (out, lse), heads)


@pytest.mark.parametrize("cache", FORMATS)
def test_one_graph_serves_all_lengths(cache):
    """Captured once with full lists; replayed with lengths anywhere from 1 to 640, and with none at all."""
    pinned("mma", cache, 64, 64)
    static = make_inputs(0, 64, 64, 8192, cache=cache, device="cuda")
    decode(*static.args())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = decode(*static.args())
    for seed in range(3):
        fresh = make_inputs(seed, 64, 64, cache=cache, device="cuda", **SHAPES["mixed"].inputs(8192))
        for target, source in zip(static.tensors(), fresh.tensors()):
            target.copy_(source)
        for output in outputs:
            output.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(static, outputs, seed)
    static.window_lengths.zero_()
    static.extra_lengths.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert (outputs[0] == 0).all() and (outputs[1] == -torch.inf).all()
