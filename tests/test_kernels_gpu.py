"""The Triton kernels on a GPU against float64: every configuration, every shape, big caches, capture, compilation."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, decode_twin, error
from capturebook.kernels.sparse_mla import pinned as pinned_module
from capturebook.kernels.sparse_mla.combine import combine_kernel
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.launch import constants_of, main_arguments, run
from capturebook.kernels.sparse_mla.mma import mma_kernel, prune, shared_bytes
from capturebook.kernels.sparse_mla.pinned import pin, pinned_config
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from capturebook.kernels.sparse_mla.simt import simt_kernel
from kernel_cases import EMPTY_ROWS, edge_inputs, replays

pytestmark = pytest.mark.gpu

KERNELS = {"mma": mma_kernel, "simt": simt_kernel}
KINDS = ("random", "peaked", "sink")


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    """What torch.empty returns is filled with NaN: outputs and partial results are poisoned before every call."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def restored(monkeypatch):
    """Puts configurations and tuning results of both autotuners back."""
    monkeypatch.setattr(pinned_module, "_tuning", {})
    for autotuner in KERNELS.values():
        monkeypatch.setattr(autotuner, "configs", list(autotuner.configs))
        monkeypatch.setattr(autotuner, "cache", {})


def compute_capability() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def check(inputs, got, what=""):
    out, lse = got
    want, want_lse = decode_reference(*inputs.args())
    assert error(out, want) <= TOLERANCE, what
    assert lse_error(lse, want_lse) <= 1e-3, what


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
def test_autotuned_over_heads(kernel, heads):
    for kind in KINDS:
        inputs = make_inputs(heads, batch=4, heads=heads, context=4096, kind=kind, device="cuda", holes=0.05)
        check(inputs, decode(*inputs.args(), kernel=kernel), kind)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("batch", [1, 3, 17, 64, 200])
def test_autotuned_over_batches(kernel, batch):
    for kind in KINDS:
        inputs = make_inputs(batch, batch=batch, heads=64, context=2048, kind=kind, device="cuda")
        check(inputs, decode(*inputs.args(), kernel=kernel), kind)


@pytest.mark.parametrize("context", [1, 40, 700])
def test_short_contexts(context):
    inputs = make_inputs(1, batch=5, heads=16, context=context, device="cuda")
    for kernel in KERNELS:
        check(inputs, decode(*inputs.args(), kernel=kernel), kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads, batch", [(8, 2), (64, 1), (64, 64), (128, 200)])
def test_every_configuration_that_fits(kernel, heads, batch):
    """Each by itself: the autotuner would only ever show its favourite."""
    autotuner = KERNELS[kernel]
    constants = constants_of(kernel, "bf16", compute_capability())
    inputs = make_inputs(3, batch=batch, heads=heads, context=2048, device="cuda", holes=0.05)
    configs = prune(autotuner.configs, {}, HEADS=heads) if kernel == "mma" else autotuner.configs
    for config in configs:
        got = run(
            autotuner.fn, combine_kernel, kernel, inputs.tensors(), inputs.scale, **constants, **config.all_kwargs()
        )
        check(inputs, got, str(config))


def test_shared_memory_is_what_pruning_assumes():
    inputs = make_inputs(3, batch=2, heads=64, context=2048, device="cuda")
    out, lse = torch.empty_like(inputs.q), inputs.q.new_empty((2, 64), dtype=torch.float32)
    arguments = main_arguments(inputs.tensors(), out, lse, inputs.scale, final=True)
    for config in prune(mma_kernel.configs, {}, HEADS=64):
        grid = (64 // config.kwargs["BLOCK_H"], 1, 2)
        constants = constants_of("mma", "bf16", compute_capability())
        compiled = mma_kernel.fn[grid](**arguments, **constants, **config.all_kwargs())
        bound = shared_bytes(config, compute_capability())
        assert bound - 1024 <= compiled.metadata.shared <= bound, str(config)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads, batch", [(8, 8), (64, 8), (64, 64)])
def test_pinned(kernel, heads, batch, restored):
    config = pinned_config(kernel, compute_capability(), heads, batch)
    pin(KERNELS[kernel], config)
    inputs = make_inputs(5, batch=batch, heads=heads, context=4096, device="cuda")
    check(inputs, decode(*inputs.args(), kernel=kernel))
    assert KERNELS[kernel].cache == {}, "a pinned kernel was tuned"
    assert KERNELS[kernel].best_config == config


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads", [8, 64])
def test_edges(kernel, heads):
    inputs = edge_inputs(heads=heads, device="cuda")
    out, lse = decode(*inputs.args(), kernel=kernel)
    check(inputs, (out, lse))
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"


@pytest.mark.parametrize("which", ["window", "extra"])
def test_cache_of_more_than_2_to_the_31_elements(which):
    slots = 2**22 + 2**13  # 512 elements each: 2^31 + 2^22 elements, 4.3 GB
    if torch.cuda.mem_get_info()[0] < 8e9:
        pytest.skip("needs 8 GB of free GPU memory")
    inputs = make_inputs(9, batch=4, heads=64, context=8192, device="cuda", **{f"{which}_slots": slots})
    indices = getattr(inputs, f"{which}_indices").clone()
    width = indices.shape[1]
    indices[0] = torch.arange(slots - width, slots)  # past 2^31 elements
    indices[1] = torch.arange(2**22 - width // 2, 2**22 + width // 2)  # across them
    inputs = replace(inputs, **{f"{which}_indices": indices})
    assert getattr(inputs, f"{which}_cache").numel() > 2**31
    for kernel in KERNELS:
        check(inputs, decode(*inputs.args(), kernel=kernel), kernel)
    check(inputs, decode_twin(*inputs.args()), "twin")


@pytest.mark.parametrize("function", ["mma", "simt", "twin"])
@pytest.mark.parametrize("batch", [2, 128])
def test_capture_and_replay_with_changed_inputs(function, batch):
    def call(*tensors):
        if function == "twin":
            return decode_twin(*tensors, static.scale)
        return decode(*tensors, static.scale, kernel=function)

    shape = dict(batch=batch, heads=64, context=2048, device="cuda")
    fresh = [make_inputs(seed, kind=kind, **shape) for seed, kind in enumerate(KINDS)]
    static = make_inputs(99, **shape)
    replay_and_check(call, static, fresh)


def replay_and_check(call, static, fresh):
    for inputs, outputs in replays(call, static, fresh):
        check(inputs, outputs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("tuning", ["live", "pinned"])
def test_compiled_and_captured(kernel, tuning, restored):
    batch, heads = 8, 64
    if tuning == "pinned":
        pin(KERNELS[kernel], pinned_config(kernel, compute_capability(), heads, batch))
    torch._dynamo.reset()
    static = make_inputs(1, batch=batch, heads=heads, context=2048, device="cuda")

    def step(*tensors):
        out, lse = decode(*tensors, static.scale, kernel=kernel)
        return out + 0.0, lse

    explained = torch._dynamo.explain(step)(*static.tensors())
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True)
    check(static, compiled(*static.tensors()))
    fresh = [make_inputs(seed, batch=batch, heads=heads, context=2048, device="cuda") for seed in (2, 3)]
    replay_and_check(compiled, static, fresh)


def test_compiled_for_any_batch():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=True)
    def step(*tensors):
        return decode(*tensors, scale)

    for batch in (7, 8, 33):
        inputs = make_inputs(batch, batch=batch, heads=64, context=2048, device="cuda")
        scale = inputs.scale
        check(inputs, step(*inputs.tensors()), f"batch {batch}")


def test_operator_checks():
    inputs = make_inputs(2, batch=2, heads=8, context=256, device="cuda")
    for kernel in KERNELS:
        torch.library.opcheck(
            torch.ops.capturebook.sparse_mla_decode,
            (*inputs.args(), kernel, "live"),
            # Dynamic shapes are tuned anew, and another configuration sums in another order before it rounds to bf16.
            atol=2e-3,
            rtol=2e-2,
        )
