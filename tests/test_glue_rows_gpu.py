"""The glue's fused kernels on a GPU against float64: sizes, capture and replay, compilation, the chain as a subject."""

import json

import pytest
import torch

from capturebook import cli
from capturebook.kernels import glue
from capturebook.kernels.glue import mhc_post_reference, mhc_pre_reference
from capturebook.kernels.glue import reference_rows as reference
from capturebook.kernels.glue.inputs import make_inputs, make_layer
from capturebook.kernels.sparse_mla import formats
from capturebook.subjects import glue_chain
from test_glue_gpu import nan_in_fresh_memory  # noqa: F401 (a fixture)

pytestmark = pytest.mark.gpu

CLOSE = 4e-3
"""bf16 rounds by up to 2 ** -9 of a value, and errors are relative to the largest."""


def near(got, want, allowed=CLOSE):
    assert (got.double() - want).abs().max() <= allowed * want.abs().max()


def near_fp8(values, scales, want):
    """Half of e4m3's step is a sixteenth of a value, 2 ** -10 of the scale below 2 ** -6 of it; fp32 rounds before."""
    assert values.dtype == torch.float8_e4m3fn and scales.T.is_contiguous()
    right = reference.quantise_reference(want.float())[1]
    assert (scales == right).float().mean() >= 0.99, "an amax at a power of two may fall to either side"
    step = torch.maximum(want.abs() / 16, scales.double().repeat_interleave(128, 1) / 1024)
    # what fp32 leaves of a difference of two large values is large against a small one
    assert ((reference.dequantise(values, scales) - want).abs() <= 1.01 * step + 1e-6 * want.abs().max()).all()


def normal(*shape):
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(sum(shape)))


@pytest.mark.parametrize("batch, d", [(1, 1024), (17, 4096), (64, 4096), (64, 7168), (256, 4096)])
def test_mhc_with_the_norm(batch, d):
    *tensors, out = make_inputs(batch, batch, d, "cuda")
    norm = normal(d)
    for after_one in (False, True):
        streams = tensors[0]
        if after_one:
            _, after, comb = mhc_pre_reference(*tensors)
            weights = (after.float(), comb.float())
            streams, *found = glue.mhc_post_pre_norm(tensors[0], out, *weights, *tensors[1:], norm)
            near(streams, mhc_post_reference(tensors[0], out, after, comb))
        else:
            found = glue.mhc_pre_norm(*tensors, norm)
        normed, values, scales, after, comb = found
        collapsed, want_after, want_comb = mhc_pre_reference(streams, *tensors[1:])
        want = reference.rms_norm_reference(collapsed, norm)
        near(normed, want)
        near_fp8(values, scales, want)
        near(after, want_after, 1e-5)
        near(comb, want_comb, 1e-5)


@pytest.mark.parametrize("batch", [1, 17, 64])
def test_rows(batch):
    layer = make_layer(batch, batch, device="cuda")
    x = layer["gate_up"]
    near_fp8(*glue.quantise(x), x.double())
    want = reference.swiglu_reference(x, 1.0)
    near(glue.swiglu(x, 1.0), want)
    near_fp8(*glue.swiglu_quantise(x, 1.0), want)


@pytest.mark.parametrize("batch, heads, padded", [(1, 8, 64), (17, 64, 64), (64, 6, 7), (64, 64, 64)])
def test_heads(batch, heads, padded):
    layer = make_layer(batch, batch, heads, device="cuda")
    table, positions = layer["table"], layer["positions"]
    rotated = glue.q_norm_rope(layer["q"], table, positions, padded)
    near(rotated, reference.q_heads_reference(layer["q"], table, positions, padded))
    want = reference.rotate_reference(rotated[:, :heads], table, positions, True).flatten(1)
    near(glue.rope_inverse(rotated, table, positions, heads), want)
    near_fp8(*glue.rope_inverse_quantise(rotated, table, positions, heads), want)
    narrow = layer["q"].reshape(batch, -1, 128)
    near(glue.rope(narrow, table, positions), reference.rotate_reference(narrow, table, positions))


@pytest.mark.parametrize("page", [0, 2, 64, 256])
def test_cache_entries(page):
    layer = make_layer(page, 17, device="cuda")
    slots = torch.randperm(17 * 64, device="cuda")[:17].int()
    slots[3] = -1
    shape, dtype = (
        ((17 * 64 // page, formats.page_stride(page)), torch.uint8) if page else ((17 * 64, 512), torch.bfloat16)
    )
    if page == 256:
        shape = (5, shape[1])
    caches = [torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(3)]
    q_norm, kv_norm = layer["norms"]
    rotation = (layer["table"], layer["positions"])
    normed, values, scales = glue.qkv_norm_store(layer["latent"], q_norm, kv_norm, *rotation, caches[0], slots)
    want = reference.rms_norm_reference(layer["latent"][:, :1024], q_norm)
    near(normed, want)
    near_fp8(values, scales, want)
    glue.kv_norm_store(layer["latent"][:, 1024:].float(), kv_norm, *rotation, caches[1], slots)
    entry = reference.rms_norm_reference(layer["latent"][:, 1024:], kv_norm)
    reference.store_reference(reference.rotate_reference(entry, *rotation).float(), caches[2], slots)
    assert torch.equal(caches[0], caches[1])
    held, right = (formats.rows_at(cache, slots[slots >= 0], torch.float64) for cache in (caches[0], caches[2]))
    assert ((held - right).abs() <= right.abs() / 7 + 1e-3).all() and (held != right).float().mean() <= 0.01
    for cache in (caches[0], caches[2]):
        reference.store_reference(torch.zeros(17, 512, device="cuda"), cache, slots)
    assert torch.equal(caches[0], caches[2]), "nothing else is written"


def test_capture_and_replay_with_changed_inputs():
    step = glue_chain.build(batch=64)
    static = step.make_inputs(0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step.fn(*static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            outputs = step.fn(*static)
    torch.cuda.synchronize()
    for seed in range(1, 4):
        for target, source in zip(static, step.make_inputs(seed)):
            target.copy_(source)
        for output in outputs.values():
            poison(output)
        static[-2].zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert step.check(step.make_inputs(seed), outputs), seed


def poison(output):
    """What a replay did not write is then seen."""
    if output.dtype == torch.float8_e4m3fn:
        output = output.view(torch.uint8)
    output.fill_(torch.nan if output.is_floating_point() else 255)


def test_compiled():
    torch._dynamo.reset()
    step = glue_chain.build(batch=8)
    inputs = step.make_inputs(1)
    assert step.check(step.make_inputs(1), torch.compile(step.fn, fullgraph=True)(*inputs))


def test_the_chain_survives_capture_and_compilation(capsys, tmp_path):
    words = ["probe", "capturebook.subjects.glue_chain:build", "--question", "compile=default", "--json"]
    status = cli.main([*words, "--run-dir", str(tmp_path / "run")])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)["owner"] == "none", out
