"""The Gluon path of sparse MLA without a GPU: its rule, its operator, and its machine code."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch

import sanitized_decode
from capturebook.kernels.sparse_mla import decode, decode_twin
from capturebook.kernels.sparse_mla.arguments import reads
from capturebook.kernels.sparse_mla.examples import examples
from capturebook.kernels.sparse_mla.formats import CACHES, FORMATS
from capturebook.kernels.sparse_mla.gluon_plan import ENTRIES, plan, wgmma_splits
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.launch import MAX_SPLITS
from capturebook.kernels.sparse_mla.paths import COLUMNS, GLUON_FORMATS, TILES_BATCH, by_columns, path_of
from capturebook.measure.limits import TABLE
from kernel_cases import AUTO, BATCH_OF, auto_inputs, auto_takes, check, planned

SMALL_POOLS = dict(window_slots=256, extra_slots=256)


@pytest.mark.parametrize("cache", GLUON_FORMATS)
@pytest.mark.parametrize("heads", COLUMNS)
def test_gluon_is_for_sm_90_with_whole_tiles_of_heads_and_many_requests_or_short_lists(cache, heads):
    least, (few, most) = TILES_BATCH[heads], COLUMNS[heads]
    for entries in (1, most, most + 1, 8192):
        assert path_of(90, least, heads, cache, entries) == "gluon"
        assert path_of(90, least - 1, heads, cache, entries) == ("gluon" if entries <= most else "mma")
        assert {path_of(sm, n, heads, cache, entries) for sm in TABLE if sm != 90 for n in (1, 1000)} == {"mma"}
        assert {path_of(90, 1000, n, cache, entries) for n in (8, 16, 32, 65, 96)} == {"mma"}
    assert by_columns(few, heads, most)
    assert not (by_columns(few + 1, heads, most) or by_columns(few, heads, most + 1) or by_columns(few, 32, most))


def test_what_has_no_measurement():
    assert path_of(90, 1000, 64, "int4", 640) == "mma"
    assert path_of(90, 1, 192, "fp8", 640) == "mma" and path_of(90, 2, 192, "fp8", 640) == "gluon", "as 128 heads"


def test_splits_fill_the_gpu_and_no_more():
    for batch in (1, 7, 32, 64, 65, 128, 256, 1000):
        for heads in (64, 128):
            splits = wgmma_splits(batch, heads, 128, 512)
            assert 1 <= splits <= 5, "a split has two of the ten tiles or more"
            assert splits == 1 or splits * batch * heads // 64 <= 132
    assert wgmma_splits(1, 64, 0, 0) == 1 and wgmma_splits(1, 64, 128, 16384) <= MAX_SPLITS
    assert wgmma_splits(8, 128, 128, 1024) == 6, "of 18 tiles 8 splits would leave two without a tile"


@pytest.mark.parametrize("window, extra", [(128, 512), (128, 0), (0, 1), (1, 2), (0, 0), (129, 511), (0, 640)])
def test_small_batches_take_the_kernel_of_columns_with_room_for_their_slots(window, extra):
    most_batch, most_entries = COLUMNS[64]
    for batch in range(1, most_batch + 1):
        found = plan(batch, 64, window, extra, "fp8")
        assert found.block_h == 16 and found.grid == (4, found.splits, batch)
        tiles = -(-window // 16) - (-extra // 16)
        assert 1 <= found.splits <= max(1, -(-tiles // 2), -(-tiles // 16))
        assert -(-tiles // found.splits) * 16 <= ENTRIES.value
        assert found.splits * batch * 4 <= 132 or found.splits == -(-tiles // 16)
    for batch, heads, entries in ((most_batch + 1, 64, extra), (2, 128, extra), (1, 64, most_entries + 1)):
        assert plan(batch, heads, window, entries, "fp8").block_h == 64


@pytest.mark.parametrize("cache", FORMATS)
def test_the_gpu_s_tests_reach_the_kernels_that_they_mean(cache):
    for kernel, batch in BATCH_OF.items():
        inputs = make_inputs(0, batch=batch, heads=64, context=2048, cache=cache, **SMALL_POOLS)
        few, none = inputs.window_indices[:, :16].contiguous(), inputs.window_indices[:, :0].contiguous()
        for window, extra in product((inputs.window_indices, few, none), (inputs.extra_indices, few, none)):
            planned(kernel, replace(inputs, window_indices=window, extra_indices=extra))
    for name, context, batches in AUTO:
        for batch, meant in batches.items():
            assert auto_takes(auto_inputs(name, context, batch, cache=cache, **SMALL_POOLS), 90) == meant
    with pytest.raises(AssertionError, match="^meant for columns; the plan for \\(16, 64\\), "):
        planned("columns", inputs)


@pytest.mark.parametrize("kernel", sanitized_decode.CASES)
def test_what_is_sanitized_has_both_ends_of_a_kernel_and_is_right(kernel):
    """Lists in splits and whole, on every GPU; the cases themselves are held to float64 by the twin."""
    for cache in filter(partial(reads, kernel), CACHES):
        for case in sanitized_decode.CASES[kernel]:
            inputs = case.inputs(cache, "cpu")
            for sm in (90,) if kernel == "gluon" else TABLE:
                assert (sanitized_decode.splits_of(kernel, case, inputs, sm, cache) == 1) is case.whole
            check(inputs, decode(*inputs.args(), kernel=kernel))


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
    assert len(found[90]) == 4 and all(e.pinned for e in found[90])
    assert not found[80] and not found[100] and not found[120]


COMPILE = """
import json, sys
from capturebook.kernels.sparse_mla.gluon_plan import plan
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise
batch, heads, cache = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
inputs = make_inputs(0, batch, heads, 512, topk=512, window_slots=256, extra_slots=256, cache=cache)
chosen = plan(batch, heads, 128, 512, cache)
arguments = chosen.arguments(inputs.tensors(), chosen.results(inputs.q), inputs.scale)
print(json.dumps(compile_row(specialise(chosen.kernel, arguments, chosen.config, 90), 90)))
"""


@pytest.mark.parametrize("batch, heads, cache", [(1, 64, "fp8"), (32, 64, "fp8"), (128, 128, "fp8"), (128, 64, "bf16")])
def test_machine_code_for_sm_90(batch, heads, cache):
    """Columns; tiles of 64 heads of split lists, and of whole ones of two tiles of heads.

    In a process of its own: a compiler that aborts (as it does on wgmma for sm_100) must not end the tests.
    """
    command = [sys.executable, "-c", COMPILE, str(batch), str(heads), cache]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    if batch == 1:
        assert row["instructions"]["HMMA"] == 32, "16 for q.k, 16 for p.v, in each warp"
        assert row["fits"] and row["ctas_per_sm"] == 2
    else:
        assert row["instructions"]["HGMMA"] >= 16, "4 and a loop of 4 for q.k, 8 for p.v"
        assert row["fits"] and row["ctas_per_sm"] == 1
    assert row["spills"] == row["stack"] == 0
