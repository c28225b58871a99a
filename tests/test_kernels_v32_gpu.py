"""V3.2's decode on a GPU: against float64, captured, compiled."""

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, pinned
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.shapes import SHAPES
from capturebook.records import Arm
from kernel_cases import EMPTY_ROWS, check, edge_inputs, often, on_gpu, replays, to_v32
from own_probes import not_clean

pytestmark = pytest.mark.gpu

V32 = dict(cache="v32", device="cuda", **SHAPES["v32"].inputs(8192))


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Fresh memory is NaN; what was pinned is put back."""
    monkeypatch.setattr(pinned, "_tuning", {})
    monkeypatch.setattr(pinned, "_entries", {})
    monkeypatch.setattr(tuner_of("mma", "v32"), "configs", list(tuner_of("mma", "v32").configs))
    monkeypatch.setattr(tuner_of("mma", "v32"), "cache", {})
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("heads, batch", [(8, 3), (128, 3), (128, 80)])
def test_against_float64(heads, batch):
    """Half a tile of heads; lists in splits; lists whole."""
    for kind in ("random", "peaked", "sink"):
        inputs = make_inputs(batch, batch, heads, kind=kind, holes=0.05, **V32)
        check(inputs, decode(*inputs.args(), kernel="auto"), kind)


@pytest.mark.parametrize("heads", [8, 128])
@pytest.mark.parametrize("times", [1, 10])
def test_edges(heads, times):
    """As often as the lists are split, and once more so often that they are whole."""
    inputs = on_gpu(often(to_v32(edge_inputs(heads=heads)), times))
    out, lse = decode(*inputs.args(), kernel="auto")
    check(inputs, (out, lse))
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all() and (out[:, 0] == 0).all()


def test_every_configuration():
    tuner = tuner_of("mma", "v32")
    for config in list(tuner.configs):
        pinned.pin(tuner, config)
        inputs = make_inputs(1, 2, 128, holes=0.05, **V32)
        check(inputs, decode(*inputs.args(), kernel="mma"), config)


def test_cache_of_more_than_2_to_the_31_bytes():
    inputs = make_inputs(9, 2, 128, extra_slots=2**22, **V32)
    assert inputs.extra_cache.nbytes > 2**31
    last = torch.arange(2**22 - 2048, 2**22, dtype=torch.int32)
    inputs.extra_indices[0].copy_(last)
    check(inputs, decode(*inputs.args(), kernel="auto"))


@pytest.mark.parametrize("kernel", ["auto", "mma"])
@pytest.mark.parametrize("compiled", [False, True])
def test_captured_once_and_replayed_with_other_lengths(kernel, compiled):
    static = make_inputs(1, 4, 128, **V32)
    if kernel == "mma":
        major, minor = torch.cuda.get_device_capability()
        pinned.pin_entry(tuner_of("mma", "v32"), pinned.pinned_entry("mma", major * 10 + minor, 128, 4, "v32"))

    def step(*tensors):
        out, lse = decode(*tensors, static.scale, kernel=kernel)
        return out + 0.0, lse

    torch._dynamo.reset()
    fresh = [make_inputs(seed, 4, 128, **V32) for seed in (2, 3)]
    fresh[1].extra_lengths.copy_(torch.tensor([0, 1, 700, 2048]))
    for inputs, outputs in replays(torch.compile(step, fullgraph=True) if compiled else step, static, fresh):
        check(inputs, outputs)


def test_the_workbooks_own_probes_find_it_clean_captured_compiled_and_both(tmp_path):
    """The step of V3.2's attention; live, tuned before the capture, and by the rule."""
    step = {"options": {"shapes": ["v32"], "batch": 4}}
    arms = [Arm(kernel=kernel) for kernel in ("auto", "mma")]
    asked = [(step, arm.changed(compile="default"), [arm, arm.changed(caches="empty")]) for arm in arms]
    assert not_clean(tmp_path, asked) == []
