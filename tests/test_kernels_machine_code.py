"""Machine code of the pinned decode kernels for sm_100 and sm_120, of which no GPU was at hand: what a launch needs."""

import pytest

from capturebook.kernels.sparse_mla import mma, mma_fp8, mma_v32
from capturebook.kernels.sparse_mla.combine import combine_kernel
from capturebook.kernels.sparse_mla.examples import examples
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.measure.crosscompile import compile_row
from capturebook.measure.specialise import specialise

TARGETS = {100: 232_448, 120: 101_376}
"""Most shared memory one CTA may have, bytes (CUDA C++ Programming Guide, technical specifications)."""

SHARED_BYTES = {"bf16": mma.shared_bytes, "fp8": mma_fp8.shared_bytes, "v32": mma_v32.shared_bytes}


def pinned_rows(kernel, cache, sm):
    """(configuration, compiled row) of each distinct pinned configuration of one kernel.

    Each once, with whole lists where it has them: that kernel applies the sink besides, and takes most registers.
    """
    distinct = {}
    for example in sorted(examples(sm, cache), key=lambda e: not e.args.get("FINAL", False)):
        if example.kernel is kernel and example.pinned:
            distinct.setdefault(str(example.config), example)
    assert distinct
    return [(e.config, compile_row(specialise(e.kernel, e.args, e.config, sm), sm)) for e in distinct.values()]


def check(row, sm):
    assert row["spills"] == row["stack"] == 0
    assert row["shared"] <= TARGETS[sm] and row["fits"]


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("cache", SHARED_BYTES)
def test_mma_spills_nothing_fits_as_pruning_says_and_multiplies_by_tensor_cores(cache, sm):
    for config, row in pinned_rows(tuner_of("mma", cache).fn, cache, sm):
        check(row, sm)
        assert {"HMMA", "UTCMMA"} & row["instructions"].keys()
        bound = SHARED_BYTES[cache](config, sm)
        assert bound - 1024 <= row["shared"] <= bound


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("name", ["simt bf16", "simt fp8", "combine"])
def test_kernels_without_tensor_cores_spill_nothing_and_fit(name, sm):
    kernel, _, cache = name.partition(" ")
    for _, row in pinned_rows(tuner_of(kernel, cache).fn if cache else combine_kernel, cache or "bf16", sm):
        check(row, sm)
        assert not any("MMA" in family for family in row["instructions"])
