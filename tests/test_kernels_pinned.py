"""Pinned configurations, pruning and split counts: all of it decided without a GPU."""

import pytest
import torch
import triton

from capturebook.kernels.sparse_mla import decode, decode_twin, mma_fp8, pinned
from capturebook.kernels.sparse_mla.arguments import KERNELS
from capturebook.kernels.sparse_mla.examples import examples
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.launch import MAX_SPLITS, run, split_count
from capturebook.kernels.sparse_mla.mma import mma_kernel, prune, shared_bytes
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.kernels.sparse_mla.simt import simt_kernel
from capturebook.measure.specialise import specialise

TARGETS = {80: 166_912, 90: 232_448, 100: 232_448, 120: 101_376}
"""Most shared memory one CTA may have, bytes (CUDA C++ Programming Guide, technical specifications)."""


@pytest.fixture
def driver(monkeypatch):
    """Stands for the GPU driver that `prune` asks for architecture and shared memory."""

    class Driver:
        sm = 90

        @property
        def utils(self):
            return self

        def get_device_properties(self, device):
            return {"max_shared_mem": TARGETS[self.sm]}

        def get_current_device(self):
            return 0

        def get_current_target(self):
            return triton.backends.compiler.GPUTarget("cuda", self.sm, 32)

    stand_in = Driver()
    monkeypatch.setattr(triton.runtime.driver, "_active", stand_in)
    return stand_in


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("batch", [1, 16, 17, 256])
def test_every_shape_has_pinned_configurations_that_are_tried_and_fit(driver, sm, heads, batch):
    driver.sm = sm
    config = pinned.pinned_config("mma", sm, heads, batch)
    assert config in prune(mma_kernel.configs, {}, HEADS=heads)
    assert shared_bytes(config, sm) <= TARGETS[sm]
    assert pinned.pinned_config("simt", sm, heads, batch) in simt_kernel.configs


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("heads, batch", [(8, 1), (64, 16), (64, 17), (128, 256)])
def test_every_shape_has_pinned_fp8_configurations_that_fit(driver, sm, heads, batch):
    driver.sm = sm
    config = pinned.pinned_config("mma", sm, heads, batch, "fp8")
    assert config in mma_fp8.prune(mma_fp8.mma_fp8_kernel.configs, {}, HEADS=heads)
    assert pinned.pinned_config("simt", sm, heads, batch, "fp8") in tuner_of("simt", "fp8").configs


def test_a_kernel_has_an_autotuner_of_its_own_for_each_format():
    tuners = [tuner_of(kernel, cache) for kernel in KERNELS for cache in FORMATS]
    assert len({id(tuner) for tuner in tuners}) == 4
    assert tuner_of("mma") is mma_kernel and tuner_of("simt") is simt_kernel
    with pytest.raises(ValueError, match="^cache: 'int4'; allowed: bf16, fp8, v32$"):
        tuner_of("mma", "int4")


@pytest.mark.parametrize("sm", TARGETS)
def test_pruning_leaves_what_fits(driver, sm):
    driver.sm = sm
    kept = prune(mma_kernel.configs, {"q": None}, HEADS=64)
    assert kept == [c for c in mma_kernel.configs if shared_bytes(c, sm) <= TARGETS[sm]]
    assert len(kept) >= 3
    assert {c.kwargs["BLOCK_H"] for c in prune(mma_kernel.configs, {}, HEADS=8)} == {16}


def test_pin_leaves_one_configuration_and_is_seen(monkeypatch):
    monkeypatch.setattr(pinned, "_tuning", {})
    autotuner = triton.autotune(configs=list(mma_kernel.configs), key=["HEADS"])(mma_kernel.fn)
    assert pinned.tuning_of("mma") == "live"
    config = mma_kernel.configs[1]
    pinned.pin(autotuner, config)
    assert autotuner.configs == [config] and len(mma_kernel.configs) > 1
    assert pinned.tuning_of("mma") == str(config) and pinned.tuning_of("simt") == "live"
    assert pinned.tuning_of("mma", "fp8") == "live"


def test_pinning_reaches_compiled_code(monkeypatch):
    """The tuning is an argument of the operator, so compiled code made before a pin is not used after it."""
    monkeypatch.setattr(pinned, "_tuning", {})
    seen = []

    def backend(graph, example_inputs):
        seen.extend(n.args[-1] for n in graph.graph.nodes if "sparse_mla_decode" in str(n.target))
        return graph

    inputs = make_inputs(0, batch=1, heads=8, context=64)
    torch._dynamo.reset()
    step = torch.compile(lambda *tensors: decode(*tensors, inputs.scale), backend=backend, fullgraph=True)
    step(*inputs.tensors())
    autotuner = triton.autotune(configs=list(mma_kernel.configs), key=["HEADS"])(mma_kernel.fn)
    pinned.pin(autotuner, mma_kernel.configs[1])
    step(*inputs.tensors())
    step(*inputs.tensors())
    assert seen == ["live", str(mma_kernel.configs[1])]


def test_unknown_pins_are_named():
    with pytest.raises(ValueError, match="kernel: 'fast'; pinned configurations exist for mma, simt"):
        pinned.pinned_config("fast", 90, 64, 8)
    with pytest.raises(ValueError, match="sm: 70; pinned configurations exist for 80, 86"):
        pinned.pinned_config("mma", 70, 64, 8)


def test_no_request_launches_nothing():
    inputs = make_inputs(0, batch=1, heads=8, context=64, window=16, topk=16, window_slots=256, extra_slots=64)
    q, *rest, sink = inputs.tensors()
    none = (q[:0], rest[0], rest[1][:0], rest[2][:0], rest[3], rest[4][:0], rest[5][:0], sink)
    out, lse = run(None, None, "mma", none, inputs.scale, entries=32)
    assert out.shape == (0, 8, 512) and lse.shape == (0, 8)


@pytest.mark.parametrize("kernel", ["mma", "simt"])
def test_splits_follow_shapes_alone(kernel):
    for heads in (8, 16, 32, 64, 128):
        counts = [split_count(kernel, batch, heads, 640) for batch in (1, 2, 4, 8, 16)]
        assert counts == sorted(counts, reverse=True) and 1 <= counts[-1] and counts[0] <= 10
    assert split_count(kernel, 1, 64, 8192) <= MAX_SPLITS
    assert [split_count(kernel, 64, 64, width, 320) for width in (640, 2048, 8320)] == [2, 7, 7], "a full GPU is full"
    assert [split_count(kernel, 1, 64, width, 320) for width in (640, 2048, 8320)] == [2, 7, 26]
    assert split_count(kernel, 256, 64, 640) == 1 and split_count(kernel, 1, 64, 0) == 1


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("cache", FORMATS)
def test_examples_are_whole_calls(sm, cache):
    made = examples(sm, cache)
    for example in made:
        assert set(example.args) == {p.name for p in example.kernel.params}, example.name
    names = {e.name for e in made}
    assert names == {e.name for e in made if e.pinned}, "each call has its pinned configuration among its examples"
    assert {"heads=8", "heads=64"} <= {word for name in names for word in name.split()}


def test_shared_memory_is_what_the_compiler_takes():
    """By wgmma; by mma.sync: test_kernels_machine_code.py. Too low an estimate would let through what cannot run."""
    wanted = {"BLOCK_H": 64, "BLOCK_N": 64}
    example = next(e for e in examples(90) if wanted.items() <= e.config.kwargs.items() and e.args["HEADS"] == 64)
    compiled = specialise(example.kernel, example.args, example.config, 90).compile()
    bound = shared_bytes(example.config, 90)
    assert bound - 1024 <= compiled.metadata.shared <= bound


@pytest.mark.parametrize("sm, heads, entries", [(90, 64, 64), (120, 32, 32)])
def test_shared_memory_of_the_fp8_kernel_is_what_the_compiler_takes(sm, heads, entries):
    """The least too, within 1 KiB: a tile that lay there twice (see fp8_rows.opaque) would be 28 KiB and more above."""
    wanted = {"BLOCK_H": heads, "BLOCK_N": entries}
    example = next(
        e for e in examples(sm, "fp8") if wanted.items() <= e.config.kwargs.items() and e.args["HEADS"] == 64
    )
    compiled = specialise(example.kernel, example.args, example.config, sm).compile()
    bound = mma_fp8.shared_bytes(example.config, sm)
    assert bound - 1024 <= compiled.metadata.shared <= bound
    assert ("e4m3x2" in compiled.asm["ptx"]) == (sm >= 89)


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("cache", FORMATS)
def test_auto_is_launched_with_the_table_s_entry_and_is_never_tuned(sm, cache):
    q = torch.empty(8, 64, 512, dtype=torch.bfloat16)
    entry = pinned.pinned_entry("mma", sm, 64, 8, cache)
    found = pinned.pinned_launch(sm, q, cache)
    assert entry["config"]["kwargs"].items() <= found.items() and found["num_warps"] == entry["config"]["num_warps"]
    assert found["entries"] == entry.get("entries", 0) and found["PDL"] is (sm >= 90) and found["DOT_FP32"] is False
    assert pinned.tuning_of("auto", cache) == pinned.DIGEST != "live"
    assert len(pinned.DIGEST) == 16


@pytest.mark.parametrize("kernel", ["auto", "gluon"])
def test_auto_and_gluon_are_the_twin_on_a_cpu(kernel):
    inputs = make_inputs(0, batch=2, heads=64, context=256, cache="fp8")
    out, lse = decode(*inputs.args(), kernel=kernel)
    want, want_lse = decode_twin(*inputs.args())
    assert torch.equal(out, want) and torch.equal(lse, want_lse)


def test_gluon_says_what_it_takes():
    few = make_inputs(0, batch=1, heads=8, context=64, cache="fp8")
    with pytest.raises(ValueError, match="^kernel: 'gluon' with 8 heads; allowed: multiples of 64$"):
        decode(*few.args(), kernel="gluon")


def test_tiles_of_64_heads_are_never_tried_on_fp8_with_tcgen05(driver):
    """They compile to a trap there: no room in tensor memory. Seen with triton 3.6 and 3.9."""
    driver.sm = 100
    kept = mma_fp8.prune(mma_fp8.mma_fp8_kernel.configs, {}, HEADS=64)
    assert kept and all(c.kwargs["BLOCK_H"] < 64 for c in kept)
    driver.sm = 90
    assert any(c.kwargs["BLOCK_H"] == 64 for c in mma_fp8.prune(mma_fp8.mma_fp8_kernel.configs, {}, HEADS=64))


@pytest.mark.parametrize("cache", FORMATS)
def test_what_torch_traces_has_no_inline_ptx(cache):
    """torch takes a kernel with inline PTX for one that writes to its inputs: compiled code would copy the caches."""
    from capturebook.kernels.sparse_mla import launch

    class Traced:
        """Stands for what wrap_triton makes of a kernel while torch traces."""

        def __getitem__(self, grid):
            return lambda **given: self.__dict__.update(given=given)

    main, combine = Traced(), Traced()
    inputs = make_inputs(0, batch=2, heads=8, context=2048, cache=cache)
    launch.run(main, combine, "mma", inputs.tensors(), inputs.scale, **launch.constants_of("mma", cache, 90))
    assert main.given["PDL"] is False and combine.given["PDL"] is False
    assert main.given.get("ASM", False) is False and "launch_pdl" not in combine.given
    assert launch.constants_of("mma", "fp8", 90)["ASM"] is launch.constants_of("mma", cache, 90)["PDL"] is True
