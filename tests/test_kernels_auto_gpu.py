"""`decode(kernel="auto")` on a GPU: right, captured and compiled without a tuning, whatever the path."""

import pytest
import torch

from capturebook.kernels.sparse_mla import decode
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.shapes import SHAPES
from capturebook.records import Arm
from kernel_cases import check, check_auto_takes
from own_probes import not_clean

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    """Fresh memory is NaN; the autotuners have seen nothing before and must have seen nothing after."""
    tuners = [tuner_of("mma", cache) for cache in FORMATS]
    for tuner in tuners:
        monkeypatch.setattr(tuner, "cache", {})
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
    assert [tuner.cache for tuner in tuners] == [{}, {}]


@pytest.mark.parametrize("cache", FORMATS)
@pytest.mark.parametrize(
    "batch, heads, meant",
    [(1, 64, "columns"), (8, 64, "columns"), (8, 8, "mma"), (64, 64, "wgmma"), (1, 128, "columns"), (4, 128, "wgmma")],
)
def test_every_bucket(cache, batch, heads, meant):
    for kind in ("random", "peaked", "sink"):
        inputs = make_inputs(3, batch, heads, 4096, kind=kind, cache=cache, holes=0.05, device="cuda")
        check_auto_takes(meant, inputs)
        check(inputs, decode(*inputs.args(), kernel="auto"), kind)


@pytest.mark.parametrize("cache", FORMATS)
@pytest.mark.parametrize("batch, meant", [(2, "columns"), (64, "wgmma")])
def test_captured_compiled_and_both(cache, batch, meant):
    static = make_inputs(1, batch, 64, 8192, cache=cache, device="cuda")
    check_auto_takes(meant, static)

    def step(*tensors):
        out, lse = decode(*tensors, static.scale, kernel="auto")
        return out + 0.0, lse

    torch._dynamo.reset()
    for function in (step, torch.compile(step, fullgraph=True)):
        check(static, function(*static.tensors()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function(*static.tensors())
        fresh = make_inputs(2, batch, 64, cache=cache, device="cuda", **SHAPES["mixed"].inputs(8192))
        for target, source in zip(static.tensors(), fresh.tensors()):
            target.copy_(source)
        for output in outputs:
            output.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(static, outputs)


def test_the_workbooks_own_probes_find_it_clean_captured_compiled_and_both(tmp_path):
    """Caches on disk empty. Which kernels these are on sm_90: the first of kernel_cases.AUTO."""
    captured = Arm(kernel="auto", caches="empty")
    compiled, both = captured.changed(compile="default", capture="none"), captured.changed(compile="default")
    steps = [{"cache": cache, "options": {"batch": batch}} for cache in FORMATS for batch in (2, 64)]
    assert not_clean(tmp_path, [(step, both, [captured, compiled]) for step in steps]) == []
