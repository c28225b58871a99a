"""The fp8 kernels on a GPU against float64: data, heads, batches, pages, scales, big caches, capture, compilation."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_twin, formats
from capturebook.kernels.sparse_mla import pinned as pinned_module
from capturebook.kernels.sparse_mla.combine import combine_kernel
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.launch import constants_of, main_arguments, run
from capturebook.kernels.sparse_mla.mma_fp8 import mma_fp8_kernel, prune, shared_bytes
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.pinned import pin, pinned_config
from kernel_cases import EMPTY_ROWS, SCALE_ENDS, check, edge_inputs, on_gpu, replays, scale_end_inputs, to_fp8

pytestmark = pytest.mark.gpu

KERNELS = {kernel: tuner_of(kernel, "fp8") for kernel in ("mma", "simt")}
KINDS = ("random", "peaked", "sink")
FP8 = dict(device="cuda", cache="fp8")


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    """What torch.empty returns is filled with NaN: outputs and partial results are poisoned before every call."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Puts configurations and tuning results of both autotuners back."""
    monkeypatch.setattr(pinned_module, "_tuning", {})
    for autotuner in KERNELS.values():
        monkeypatch.setattr(autotuner, "configs", list(autotuner.configs))
        monkeypatch.setattr(autotuner, "cache", {})


def pinned(kernel, heads=64, batch=8):
    """The kernel's pinned configuration, which it has alone from now on: one compilation instead of six."""
    config = pinned_config(kernel, compute_capability(), heads, batch, "fp8")
    pin(KERNELS[kernel], config)
    return config


def compute_capability() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def test_quantiser_is_the_cpu_s_bit_by_bit():
    rows = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    rows = (rows * torch.exp2(torch.arange(512)[:, None] / 4 - 30)).bfloat16()
    here, there = formats.quantise(rows.cuda(), 64), formats.quantise(rows, 64)
    assert torch.equal(here.cpu(), there)
    slots = torch.arange(512)
    assert torch.equal(formats.dequantise(here, slots.cuda()).cpu(), formats.dequantise(there, slots))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
def test_every_number_of_heads(kernel, heads):
    pinned(kernel, heads)
    for kind in KINDS:
        inputs = make_inputs(heads, batch=4, heads=heads, context=4096, kind=kind, holes=0.05, **FP8)
        check(inputs, decode(*inputs.args(), kernel=kernel), kind)


@pytest.mark.parametrize("batch", [1, 3, 17, 64, 200])
def test_batches(batch):
    pinned("mma", batch=batch)
    for kind in KINDS:
        inputs = make_inputs(batch, batch=batch, heads=64, context=2048, kind=kind, **FP8)
        check(inputs, decode(*inputs.args()), kind)


def test_autotuned():
    """The other tests pin: this one lets it choose."""
    inputs = make_inputs(6, batch=4, heads=8, context=2048, kind="peaked", **FP8)
    check(inputs, decode(*inputs.args()))
    assert len(mma_fp8_kernel.cache) == 1 and mma_fp8_kernel.best_config in mma_fp8_kernel.configs


def test_every_configuration_that_fits():
    """Each by itself: the autotuner would only ever show its favourite."""
    constants = constants_of("mma", "fp8", compute_capability())
    inputs = make_inputs(3, batch=4, heads=64, context=2048, holes=0.05, **FP8)
    for config in prune(mma_fp8_kernel.configs, {}, HEADS=64):
        got = run(
            mma_fp8_kernel.fn,
            combine_kernel,
            "mma",
            inputs.tensors(),
            inputs.scale,
            **constants,
            **config.all_kwargs(),
        )
        check(inputs, got, str(config))


@pytest.mark.parametrize("kernel", KERNELS)
def test_e4m3_by_integer_operations(kernel):
    """What hardware without the conversion runs (sm_80), run here."""
    config = pinned_config(kernel, 80, 64, 8, "fp8")
    inputs = make_inputs(4, batch=8, heads=64, context=2048, **FP8)
    constants = constants_of(kernel, "fp8", 80) | config.all_kwargs()
    assert constants["E4M3"] is False
    check(inputs, run(KERNELS[kernel].fn, combine_kernel, kernel, inputs.tensors(), inputs.scale, **constants))


def test_shared_memory_is_what_pruning_assumes():
    inputs = make_inputs(3, batch=2, heads=64, context=2048, **FP8)
    out, lse = torch.empty_like(inputs.q, dtype=torch.float32), inputs.q.new_empty((2, 64), dtype=torch.float32)
    arguments = main_arguments(inputs.tensors(), out, lse, inputs.scale, final=False)
    arguments |= constants_of("mma", "fp8", compute_capability())
    for config in prune(mma_fp8_kernel.configs, {}, HEADS=64):
        compiled = mma_fp8_kernel.fn[(64 // config.kwargs["BLOCK_H"], 1, 2)](**arguments, **config.all_kwargs())
        bound = shared_bytes(config, compute_capability())
        assert bound - 1024 <= compiled.metadata.shared <= bound, str(config)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads, batch", [(8, 8), (64, 8), (64, 64)])
def test_a_pinned_kernel_is_not_tuned(kernel, heads, batch):
    config = pinned(kernel, heads, batch)
    inputs = make_inputs(5, batch=batch, heads=heads, context=4096, **FP8)
    check(inputs, decode(*inputs.args(), kernel=kernel))
    assert KERNELS[kernel].cache == {}, "a pinned kernel was tuned"
    assert KERNELS[kernel].best_config == config


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads, pages", [(8, (256, 64)), (64, (256, 2)), (64, (64, 256))])
def test_edges(kernel, heads, pages):
    pinned(kernel, heads)
    inputs = on_gpu(to_fp8(edge_inputs(heads=heads), *pages))
    out, lse = decode(*inputs.args(), kernel=kernel)
    check(inputs, (out, lse))
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"


@pytest.mark.parametrize("kernel", ["mma", "simt", "twin"])
@pytest.mark.parametrize("heads", [8, 64])
def test_both_ends_of_the_scales(kernel, heads):
    inputs = scale_end_inputs(heads=heads, device="cuda")
    if kernel == "twin":
        got = decode_twin(*inputs.args())
    else:
        pinned(kernel, heads)
        got = decode(*inputs.args(), kernel=kernel)
    check(inputs, got, kernel, **SCALE_ENDS)


@pytest.mark.parametrize("which", ["window", "extra"])
def test_cache_of_more_than_2_to_the_31_bytes(which):
    slots = 2**22  # 585 bytes each: 2.45 GB
    if torch.cuda.mem_get_info()[0] < 16e9:
        pytest.skip("needs 16 GB of free GPU memory")
    inputs = make_inputs(9, batch=4, heads=64, context=8192, **{f"{which}_slots": slots}, **FP8)
    indices = getattr(inputs, f"{which}_indices").clone()
    width = indices.shape[1]
    across = 2**31 // 585
    indices[0] = torch.arange(slots - width, slots)  # past 2^31 bytes
    indices[1] = torch.arange(across - width // 2, across + width // 2)  # across them
    inputs = replace(inputs, **{f"{which}_indices": indices})
    assert getattr(inputs, f"{which}_cache").numel() > 2**31
    for kernel in KERNELS:
        pinned(kernel, batch=4)
        check(inputs, decode(*inputs.args(), kernel=kernel), kernel)
    check(inputs, decode_twin(*inputs.args()), "twin")


@pytest.mark.parametrize("function", ["mma", "simt", "twin"])
@pytest.mark.parametrize("batch", [2, 128])
def test_capture_and_replay_with_changed_inputs(function, batch):
    def call(*tensors):
        if function == "twin":
            return decode_twin(*tensors, static.scale)
        return decode(*tensors, static.scale, kernel=function)

    if function != "twin":
        pinned(function, batch=batch)
    shape = dict(batch=batch, heads=64, context=2048, **FP8)
    fresh = [make_inputs(seed, kind=kind, **shape) for seed, kind in enumerate(KINDS)]
    static = make_inputs(99, **shape)
    replay_and_check(call, static, fresh)


def replay_and_check(call, static, fresh):
    for inputs, outputs in replays(call, static, fresh):
        check(inputs, outputs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("tuning", ["live", "pinned"])
def test_compiled_and_captured(kernel, tuning):
    batch, heads = 8, 64
    if tuning == "pinned":
        pinned(kernel, heads, batch)
    torch._dynamo.reset()
    static = make_inputs(1, batch=batch, heads=heads, context=2048, **FP8)

    def step(*tensors):
        out, lse = decode(*tensors, static.scale, kernel=kernel)
        return out + 0.0, lse

    explained = torch._dynamo.explain(step)(*static.tensors())
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True)
    check(static, compiled(*static.tensors()))
    fresh = [make_inputs(seed, batch=batch, heads=heads, context=2048, **FP8) for seed in (2, 3)]
    replay_and_check(compiled, static, fresh)


def test_operator_checks():
    inputs = make_inputs(2, batch=2, heads=8, context=256, **FP8)
    for kernel in KERNELS:
        pinned(kernel, 8, 2)
        torch.library.opcheck(
            torch.ops.capturebook.sparse_mla_decode_fp8,
            (*inputs.args(), kernel, "pinned"),
            atol=2e-3,
            rtol=2e-2,
        )
