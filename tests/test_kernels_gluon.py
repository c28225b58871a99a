"""The Gluon path of sparse MLA without a GPU: its rule, its operator, and its machine code."""

import json
import subprocess
import sys

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_twin
from capturebook.kernels.sparse_mla.examples import examples
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.gluon_op import gluon_splits
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.paths import GLUON_BATCH, path_of
from capturebook.measure.limits import TABLE


@pytest.mark.parametrize("cache", GLUON_BATCH)
def test_gluon_is_for_wgmma_with_whole_tiles_of_heads_and_many_requests(cache):
    least = GLUON_BATCH[cache]
    assert path_of(90, least, 64, cache) == "gluon"
    assert path_of(90, least - 1, 64, cache) == "mma"
    assert path_of(90, -(-least // 2), 128, cache) == "gluon", "128 heads are two tiles a request"
    assert {path_of(sm, 1000, 64, cache) for sm in TABLE if sm != 90} == {"mma"}
    assert {path_of(90, 1000, heads, cache) for heads in (8, 16, 32, 65, 96)} == {"mma"}


def test_a_format_without_a_measurement_is_not_for_gluon():
    assert path_of(90, 1000, 64, "int4") == "mma"


def test_splits_fill_the_gpu_and_no_more():
    for batch in (1, 7, 32, 64, 65, 128, 256, 1000):
        for heads in (64, 128):
            splits = gluon_splits(batch, heads, 128, 512)
            assert 1 <= splits <= 5, "a split has two of the ten tiles or more"
            assert splits == 1 or splits * batch * heads // 64 <= 132
    assert gluon_splits(1, 64, 0, 0) == 1


@pytest.mark.parametrize("cache", FORMATS)
def test_on_a_cpu_it_is_the_twin_and_its_fake_has_the_same_shapes(cache):
    inputs = make_inputs(1, batch=3, heads=64, context=512, cache=cache)
    operator = getattr(torch.ops.capturebook, f"sparse_mla_decode_gluon_{cache}")
    want, want_lse = decode_twin(*inputs.args())
    for out, lse in (operator(*inputs.args()), decode(*inputs.args(), kernel="gluon")):
        assert torch.equal(out, want) and torch.equal(lse, want_lse)
    torch.library.opcheck(operator, inputs.args())


@pytest.mark.parametrize("cache", FORMATS)
def test_examples_are_for_sm_90_alone(cache):
    found = {sm: [e for e in examples(sm, cache) if e.name.startswith("gluon")] for sm in (80, 90, 100, 120)}
    assert len(found[90]) == 2 and all(e.pinned for e in found[90])
    assert not found[80] and not found[100] and not found[120]


COMPILE = """
import json, sys
from capturebook.kernels.sparse_mla.examples import examples
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
example = [e for e in examples(90, sys.argv[2]) if e.name.startswith("gluon")][int(sys.argv[1])]
print(json.dumps(compile_row(specialise(example.kernel, example.args, example.config, 90), 90)))
"""


@pytest.mark.parametrize("index, cache", [(0, "fp8"), (1, "fp8"), (1, "bf16")])
def test_machine_code_for_sm_90(index, cache):
    """In a process of its own: a compiler that aborts (as it does on wgmma for sm_100) must not end the tests."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(index), cache], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["instructions"]["HGMMA"] >= 16, "4 and a loop of 4 for q.k, 8 for p.v"
    assert row["fits"] and row["ctas_per_sm"] == 1
    assert row["spills"] == row["stack"] == 0
