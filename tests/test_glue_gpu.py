"""mHC's kernels on a GPU against float64: sizes, capture and replay, compilation."""

import json

import pytest
import torch

from capturebook import cli
from capturebook.kernels.glue import mhc_post, mhc_post_reference, mhc_pre, mhc_pre_reference
from capturebook.kernels.glue.inputs import make_inputs

pytestmark = pytest.mark.gpu


def step(streams, projection, scale, base, out):
    collapsed, after, comb = mhc_pre(streams, projection, scale, base)
    return collapsed, after, comb, mhc_post(streams, out, after, comb)


def check(inputs, got):
    *tensors, out = inputs
    collapsed, after, comb = mhc_pre_reference(*tensors)
    want = (collapsed, after, comb, mhc_post_reference(tensors[0], out, after, comb))
    # bf16 rounds by up to 2^-9; weights are fp32, their projection in three TF32 products
    for name, a, b, allowed in zip(("collapsed", "after", "comb", "new"), got, want, (4e-3, 1e-5, 1e-5, 4e-3)):
        assert (a - b).abs().max() <= allowed * b.abs().max(), name


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("batch", [1, 8, 17, 64, 256])
@pytest.mark.parametrize("d", [1024, 4096, 7168])
def test_against_float64(batch, d):
    inputs = make_inputs(batch, batch, d, "cuda")
    check(inputs, step(*inputs))


def test_capture_and_replay_with_changed_inputs():
    static = make_inputs(9, 64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            outputs = step(*static)
    torch.cuda.synchronize()
    for seed in range(3):
        for target, source in zip(static, make_inputs(seed, 64, device="cuda")):
            target.copy_(source)
        for output in outputs:
            output.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(static, outputs)


def test_compiled():
    torch._dynamo.reset()
    inputs = make_inputs(1, 8, device="cuda")
    check(inputs, torch.compile(step, fullgraph=True)(*inputs))


def test_operator_checks():
    *tensors, out = make_inputs(2, 4, 1024, "cuda")
    torch.library.opcheck(torch.ops.capturebook.mhc_pre, tuple(tensors))
    _, after, comb = mhc_pre(*tensors)
    torch.library.opcheck(torch.ops.capturebook.mhc_post, (tensors[0], out, after, comb))


@pytest.mark.parametrize("question", ["", "compile=default"])
def test_it_survives_capture_and_compilation(capsys, tmp_path, question):
    words = ["probe", "capturebook.subjects.glue:build", "--question", question, "--json"]
    status = cli.main([*words, "--run-dir", str(tmp_path / "run")])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)["owner"] == "none", out
