"""The decode step on a GPU: probed as a subject, and one graph replayed while its requests grow. About two minutes.

python -m pytest -m gpu tests/test_decode_step_gpu.py
"""

import json

import pytest
import torch

from capturebook import cli
from capturebook.subjects.decode_step import build, reference
from capturebook.subjects.decode_step.step import FP8_TOLERANCE, TOLERANCE

pytestmark = pytest.mark.gpu
STEP = "capturebook.subjects.decode_step:build"
STOCK = {"kernel": "simt", "padded": True, "indexer": "stock"}
FP8 = {"cache": "fp8", "keys": "fp8", "routing": "hash"}


@pytest.mark.parametrize(
    "options",
    [
        STOCK,
        {**FP8, "overlap": True},
        {"glue": "fused", "experts": "fp8", "overlap": True, "sync": "event"},
    ],
)
def test_one_graph_serves_requests_that_grow(options):
    """130 steps of one capture: each window of both compressors ends, every layer is held to float64 when one does."""
    tolerance = FP8_TOLERANCE if "experts" in options else TOLERANCE
    step = build(**{"tuning": "pinned", "batch": 4, "context": 2048, "max_context": 8192, **options})
    positions = step.state()["positions"]
    inputs = step.make_inputs(0)
    start = positions.clone()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(2):
                step.fn(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            outputs = step.fn(*inputs)
        positions.copy_(start - 122)
        for call in range(130):
            for live, new in zip(inputs, step.make_inputs(call)):
                live.copy_(new)
            for output in outputs.values():
                output.fill_(torch.nan if output.is_floating_point() else -1)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(positions, start - 122 + call + 1)
            if call % 32 == 0 or call >= 122:
                positions.sub_(1)  # what the replay wrote is written again by the reference, in its own copy
                found = reference.errors(step.fn.func, *inputs, outputs)
                positions.add_(1)
                assert max(found.values()) <= tolerance, (call, found)
    print(found)


def test_it_survives_capture_as_a_subject(capsys, tmp_path):
    options = {"context": 2048, "max_context": 8192, **FP8, "experts": "fp8", "glue": "fused", "overlap": True}
    words = [f"--option={name}={json.dumps(value)}" for name, value in options.items()]
    # some thirty kernels, compiled one after the other in one cold process: a minute on a busy host
    given = ["--deadline", "180", "--arm-only", "--json", "--run-dir", str(tmp_path / "run")]
    status = cli.main(["probe", STEP, *words, *given])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)["status"] == "pass", out


def test_a_graph_for_each_batch_in_one_pool(capsys):
    """Requests come, go and grow: batches of all sizes by their bucket's graph, each held to float64."""
    from capturebook.subjects.decode_step.buckets import Buckets, narrowed

    step = build(tuning="pinned", glue="fused", layers=["csa", "hca"], batch=16, context=2048, max_context=8192)
    stack, ops = step.fn.func, step.fn.args[0]
    buckets = Buckets(stack, ops, [1, 4, 8, 16], 4096)
    assert list(buckets.graph_bytes) == [16, 8, 4, 1]
    positions = stack.requests.positions
    for call, batch in enumerate([16, 3, 4, 5, 8, 1, 16, 9, 2, 16]):
        streams, tokens = step.make_inputs(call)
        before = positions.clone()
        found = buckets(streams[:batch], tokens[:batch])
        torch.cuda.synchronize()
        size = buckets.bucket(batch)
        assert torch.equal(positions[:batch], before[:batch] + 1) and torch.equal(positions[size:], before[size:])
        part = narrowed(stack, batch)
        positions[:batch].sub_(1)
        errors = reference.errors(part, streams[:batch], tokens[:batch], found)
        positions[:batch].add_(1)
        assert max(errors.values()) <= TOLERANCE, (batch, errors)
        positions[batch:size].copy_(before[batch:size])  # idle rows hold requests again in the next round
    with capsys.disabled():
        print({size: tuple(f"{b / 2**20:.1f} MiB" for b in found) for size, found in buckets.graph_bytes.items()})
