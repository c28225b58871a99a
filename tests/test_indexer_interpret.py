"""The indexer's kernels under Triton's interpreter against float64: scores, bounds, selection, ties; no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexer_cases import cases, score_rows
from test_kernels_interpret import pytestmark  # noqa: F401  where the interpreter cannot loop

BOUNDED = [f"bounded/{case}" for case in (*cases(48), "turns")]
STOCK = ["stock/random", "stock/edges", "stock/fp8"]
ROWS = ["rows/56"]


@pytest.fixture(scope="module")
def measured() -> dict:
    """{"kernel/case": errors} of all cases, from two processes at once."""
    here = Path(__file__).parent
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(here / "interpreted_indexer.py"), *names],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for names in (BOUNDED + STOCK, ROWS)
    ]
    found = {}
    for process in started:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        found |= json.loads(out)
    return found


@pytest.mark.parametrize("case", BOUNDED + STOCK)
def test_interpreted_scores_against_float64(measured, case):
    assert measured[case]["scores"] <= 1e-6
    assert measured[case]["beyond"], "stock fills what lies beyond a length with -inf, bounded does not touch it"


@pytest.mark.parametrize("case", BOUNDED)
def test_interpreted_selection_against_float64(measured, case):
    assert measured[case]["selection"] <= 1e-6


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("kind", score_rows())
def test_interpreted_selection_of_given_scores(measured, case, kind):
    """As torch.topk has it, as a set, but for equal scores."""
    assert measured[case][kind] == 0
