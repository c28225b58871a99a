"""The compressor on a CPU: by hand, through the operator, interpreted, compiled; refusals."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from capturebook.kernels.compressor import compress, compress_reference
from capturebook.kernels.compressor.examples import examples
from capturebook.kernels.compressor.inputs import make_inputs
from capturebook.kernels.compressor.reference import pool
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
from test_kernels_interpret import pytestmark as interpreter_runs


@pytest.mark.parametrize("position", [3, 7, 11])
def test_pooling_by_hand(position):
    """One value of one request, from the paper's formulas: softmax over the window's 4 tokens and the 4 before."""
    generator = torch.Generator().manual_seed(position)
    history = torch.randn(12, 2, 2, generator=generator, dtype=torch.float64)  # token; value, gate; series a, b
    bias = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    ring = torch.zeros(1, 8, 4, dtype=torch.float64)
    for token in range(max(0, position - 7), position + 1):
        ring[0, token % 8] = history[token].flatten()
    found = pool(ring, bias, torch.tensor([position]))
    first = position // 4 * 4
    tokens = [(t, 1) for t in range(first, position + 1)] + [(t, 0) for t in range(max(0, first - 4), first)]
    weights = [math.exp(float(history[t, 1, s] + bias[t % 4, s])) for t, s in tokens]
    want = sum(w * float(history[t, 0, s]) for w, (t, s) in zip(weights, tokens)) / sum(weights)
    assert float(found) == pytest.approx(want)


@pytest.mark.parametrize("kind", ["csa", "hca", "keys"])
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_the_operator_writes_what_the_reference_does(kind, cache):
    given = make_inputs(2, kind, [3, 127, 130], cache)
    operator, reference = ([tensor.clone() for tensor in given] for _ in range(2))
    compress(*operator, keys=kind == "keys")
    compress_reference(*reference, keys=kind == "keys")
    assert all(torch.equal(a, b) for a, b in zip(operator, reference))
    assert not torch.equal(operator[6], given[6]) and not torch.equal(operator[1], given[1])
    if kind == "keys" and cache == "fp8":
        torch.library.opcheck(torch.ops.capturebook.compress.default, (*given, True))


@interpreter_runs
def test_interpreted_against_float64():
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).parent / "interpreted_compressor.py"
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == 6
    for case, errors in found.items():
        # in e4m3 a value has 4 digits; those of the bf16 end are cut there
        assert errors["off"] <= (2**-4 if "fp8" in case else 1e-6), (case, errors)
        assert errors["ring"] == errors["elsewhere"] == 0, (case, errors)
        assert errors["written"] == (2 if "hca" in case else 3), (case, errors)


def test_it_compiles_without_spills():
    """One of each size: the others differ in how they store."""
    sm = 90
    found = [example for example in examples(sm) if example.name.split()[1:] in (["keys", "fp8"], ["hca", "fp8"])]
    assert len(found) == 2
    for example in found:
        assert set(example.args) == {p.name for p in example.kernel.params}
        row = compile_row(specialise(example.kernel, example.args, example.config, sm), sm)
        assert row["fits"] and row["spills"] == row["stack"] == 0, (example.name, row)


@pytest.mark.parametrize(
    ("index", "change", "text"),
    [
        (0, lambda x: x[:, 1:], "projected: shape (2, 2047); allowed: [2, 2048]"),
        (1, lambda x: x[:, :3], "ring: shape (2, 3, 2048); allowed: [batch, 1 or 2 times bias's rows"),
        (2, lambda x: x.bfloat16(), "bias: dtype torch.bfloat16; allowed: torch.float32"),
        (6, lambda x: x[:, :256], "cache: shape (128, 256); allowed: [any, 512]"),
        (7, lambda x: x.long(), "slots: dtype torch.int64; allowed: torch.int32"),
    ],
)
def test_refusals(index, change, text):
    tensors = list(make_inputs(0, "csa", [3, 5]))
    tensors[index] = change(tensors[index])
    with pytest.raises(ValueError) as refused:
        compress(*tensors)
    assert str(refused.value).startswith(text) and "\n" not in str(refused.value)
