"""The Triton kernels under Triton's interpreter against float64: indexing, masks, softmax, splits, combine; no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import triton

DATA, EDGES = ("random", "peaked", "sink"), ("edges", "edges, one split")
MMA = [f"mma/{case}" for case in ("random", *EDGES, "one split", "many splits", "32 heads")]
SIMT = [f"simt/{case}" for case in ("random", *EDGES, "one split")]
FP8 = ("one split", "edges, pages of 2", "edges, sm_80", "scales, sm_80")
MMA += [f"mma/fp8 {case}" for case in (*DATA, *EDGES, *FP8)]
MMA += [f"mma/v32 {case}" for case in ("random", *EDGES)]
SIMT += [f"simt/fp8 {case}" for case in ("random", "one split", "edges, pages of 2", "scales, sm_80")]
COMBINE = [f"combine/{splits} splits in fp16" for splits in (2, 5, 16, 17, 40)]


def _runs() -> bool:
    """Triton 3.6's interpreter takes int() of arrays of one element, which numpy 2.4 refuses."""
    newer = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7)
    return newer or tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (2, 4)


pytestmark = pytest.mark.skipif(
    not _runs(), reason=f"triton {triton.__version__}'s interpreter cannot loop with numpy {numpy.__version__}"
)


@pytest.fixture(scope="module")
def measured() -> dict:
    """{"kernel/case": errors} of all cases, from a process of their own."""
    command = [sys.executable, str(Path(__file__).with_name("interpreted_cases.py")), *MMA, *SIMT, *COMBINE]
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", MMA + SIMT + COMBINE)
def test_interpreted_kernel_against_float64(measured, case):
    result = measured[case]
    # all in fp32 there, so far below the 3e-3 that bf16 costs on a GPU
    assert result["error"] <= 1e-5
    assert result["lse_error"] <= 1e-5
    assert result["empty"] == 0


def test_cases_cover_the_paths(measured):
    splits = {name: result["splits"] for name, result in measured.items()}
    assert splits["mma/random"] > 1 and splits["simt/random"] > 1, "the combine kernel ran"
    assert splits["mma/fp8 random"] > 1 and splits["simt/fp8 random"] > 1 and splits["mma/v32 random"] > 1
    assert splits["mma/edges"] > 1 and splits["mma/fp8 edges"] > 1 and splits["mma/v32 edges"] > 1
    assert splits["mma/many splits"] > 16 >= splits["mma/random"], "both ways of the combine"
    alone = {count for name, count in splits.items() if name.endswith("one split")}
    assert alone == {1}, "the kernel applied the sink by itself"
    assert {result["block_h"] for name, result in measured.items() if name.startswith("mma/")} == {16, 32}
