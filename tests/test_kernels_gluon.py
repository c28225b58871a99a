"""The Gluon path of sparse MLA without a GPU: its rule, its operator, and its machine code."""

import json
import subprocess
import sys

import pytest
import torch

from capturebook.kernels.sparse_mla import decode_twin
from capturebook.kernels.sparse_mla.examples import examples_fp8
from capturebook.kernels.sparse_mla.gluon_op import decode_gluon_fp8, gluon_splits
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.paths import GLUON_BATCH, path_of
from capturebook.measure.limits import TABLE


def test_only_wgmma_with_whole_tiles_of_heads_and_the_fp8_cache_is_for_gluon():
    many = 64 * GLUON_BATCH
    assert path_of(90, GLUON_BATCH, 64, "fp8") == "gluon"
    assert path_of(90, GLUON_BATCH - 1, 64, "fp8") == "mma"
    assert path_of(90, -(-GLUON_BATCH // 2), 128, "fp8") == "gluon", "128 heads are two tiles a request"
    assert {path_of(sm, many, 64, "fp8") for sm in TABLE if sm != 90} == {"mma"}
    assert {path_of(90, many, heads, "fp8") for heads in (8, 16, 32, 65, 96)} == {"mma"}
    assert path_of(90, many, 64, "bf16") == "mma"


def test_splits_fill_the_gpu_and_no_more():
    for batch in (1, 7, 32, 64, 65, 128, 256, 1000):
        for heads in (64, 128):
            splits = gluon_splits(batch, heads, 128, 512)
            assert 1 <= splits <= 5, "a split has two of the ten tiles or more"
            assert splits == 1 or splits * batch * heads // 64 <= 132
    assert gluon_splits(1, 64, 0, 0) == 1


def test_on_a_cpu_it_is_the_twin_and_its_fake_has_the_same_shapes():
    inputs = make_inputs(1, batch=3, heads=64, context=512, cache="fp8")
    out, lse = decode_gluon_fp8(*inputs.args())
    want, want_lse = decode_twin(*inputs.args())
    assert torch.equal(out, want) and torch.equal(lse, want_lse)
    torch.library.opcheck(torch.ops.capturebook.sparse_mla_decode_gluon_fp8, inputs.args())


def test_examples_are_for_sm_90_alone():
    names = {sm: [e.name for e in examples_fp8(sm) if e.name.startswith("gluon")] for sm in (80, 90, 100, 120)}
    assert len(names[90]) == 2 and not names[80] and not names[100] and not names[120]
    assert all(e.pinned for e in examples_fp8(90) if e.name.startswith("gluon"))


COMPILE = """
import json, sys
from capturebook.kernels.sparse_mla.examples import examples_fp8
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
example = [e for e in examples_fp8(90) if e.name.startswith("gluon")][int(sys.argv[1])]
print(json.dumps(compile_row(specialise(example.kernel, example.args, example.config, 90), 90)))
"""


@pytest.mark.parametrize("index", [0, 1])
def test_machine_code_for_sm_90(index):
    """In a process of its own: a compiler that aborts (as it does on wgmma for sm_100) must not end the tests."""
    done = subprocess.run([sys.executable, "-c", COMPILE, str(index)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["instructions"]["HGMMA"] >= 16, "4 and a loop of 4 for q.k, 8 for p.v"
    assert row["fits"] and row["ctas_per_sm"] == 1
    assert row["spills"] == row["stack"] == 0
