"""Targets and occupancy, the latter against NVIDIA's own calculator where a C compiler is there."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from capturebook.measure.limits import TABLE, parse_target, parse_targets
from capturebook.measure.occupancy import occupancy


@pytest.mark.parametrize("text", ["sm_90", "sm_90a", "90", 90, " SM_90 "])
def test_targets_by_any_usual_name(text):
    assert parse_target(text) == 90


@pytest.mark.parametrize("text", ["sm_70", "hopper", "", "9.0", "sm_90,"])
def test_an_unknown_target_is_one_clear_line(text):
    with pytest.raises(ValueError, match=r"^targets: .* is not a target; allowed: sm_80, .*sm_120$"):
        parse_target(text)


def test_target_lists():
    assert parse_targets("sm_120,90, sm_90a") == [120, 90]
    assert parse_targets([80, "sm_100"]) == [80, 100]
    with pytest.raises(ValueError, match="targets: ',' names none"):
        parse_targets(",")


@pytest.mark.parametrize(
    ("sm", "registers", "shared", "warps", "ctas", "limiter"),
    [
        (90, 255, 0, 8, 1, "registers"),  # 8 warps x 8192 registers: one CTA is the whole file
        (90, 128, 0, 4, 4, "registers"),
        (90, 32, 0, 4, 16, "warps"),
        (90, 32, 0, 1, 32, "ctas"),
        (90, 32, 113 * 1024, 4, 2, "shared"),
        (90, 32, 227 * 1024, 4, 1, "shared"),
        (90, 32, 227 * 1024 + 1, 4, 0, "shared"),
        (120, 32, 99 * 1024 + 1, 4, 0, "shared"),
        (80, 256, 0, 4, 0, "registers"),
    ],
)
def test_occupancy_by_hand(sm, registers, shared, warps, ctas, limiter):
    found = occupancy(TABLE[sm], registers, shared, warps)
    assert (found.ctas, found.limiter) == (ctas, limiter)
    assert found.share == ctas * warps / TABLE[sm].warps_per_sm


def test_tensor_memory_is_shared_between_ctas():
    assert occupancy(TABLE[100], 64, 1024, 4, tensor_columns=256).ctas == 2
    assert occupancy(TABLE[100], 64, 1024, 4, tensor_columns=512).limiter == "tensor memory"
    assert occupancy(TABLE[90], 64, 1024, 4, tensor_columns=64).ctas == 0


PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <limits.h>
#include "cuda_occupancy.h"
int main(void) {
    int major, minor, regs, warps, warps_per_sm; long shared, optin, per_sm;
    while (scanf("%d %d %d %ld %d", &major, &minor, &regs, &shared, &warps) == 5 &&
           scanf("%d %ld %ld", &warps_per_sm, &optin, &per_sm) == 3) {
        struct cudaOccDeviceProp p; struct cudaOccFuncAttributes a; struct cudaOccDeviceState s; struct cudaOccResult r;
        memset(&p, 0, sizeof p); memset(&a, 0, sizeof a); memset(&s, 0, sizeof s); memset(&r, 0, sizeof r);
        p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
        p.maxThreadsPerMultiprocessor = 32 * warps_per_sm; p.regsPerBlock = p.regsPerMultiprocessor = 65536;
        p.warpSize = 32; p.sharedMemPerBlock = 48 * 1024; p.sharedMemPerMultiprocessor = per_sm; p.numSms = 1;
        p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = 1024;
        a.maxThreadsPerBlock = INT_MAX; a.numRegs = regs; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        a.maxDynamicSharedSizeBytes = optin; s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        int e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, 32 * warps, shared);
        printf("%d\n", e ? -e : r.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler (cc): NVIDIA's calculator cannot be built")
def test_occupancy_equals_nvidias_calculator(tmp_path):
    import triton.backends.nvidia

    include = Path(triton.backends.nvidia.__file__).parent / "include"
    if not (include / "cuda_occupancy.h").exists():
        pytest.skip("this Triton ships no cuda_occupancy.h")
    (tmp_path / "occ.c").write_text(PROGRAM)
    subprocess.run(["cc", "-I", str(include), "-o", str(tmp_path / "occ"), str(tmp_path / "occ.c")], check=True)
    cases = list(
        itertools.product(
            TABLE.values(),
            (0, 16, 32, 40, 64, 96, 128, 168, 200, 232, 255),
            (0, 100, 1024, 8192, 40000, 65536, 100352, 101376, 101377, 166912, 196608, 232448, 232449),
            (1, 2, 3, 4, 6, 8, 12, 16, 32),
        )
    )
    lines = [
        f"{t.sm // 10} {t.sm % 10} {r} {s} {w} {t.warps_per_sm} {t.shared_per_cta} {t.shared_per_sm}"
        for t, r, s, w in cases
    ]
    done = subprocess.run([tmp_path / "occ"], input="\n".join(lines), capture_output=True, text=True, check=True)
    theirs = [int(line) for line in done.stdout.split()]
    ours = [occupancy(t, r, s, w).ctas for t, r, s, w in cases]
    assert [(c, o, t) for c, o, t in zip(cases, ours, theirs, strict=True) if o != t] == []
