"""compute-sanitizer over one small decode of each path: no byte beyond a tensor, no race in shared memory."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from racecheck_reports import handed_over, pairs, textbook

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not on PATH (it comes with the CUDA toolkit)"),
]


def sanitized(tool: str, script: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [SANITIZER, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
    # torch's own kernels, of which the inputs and the reference take many, are left alone
    command += ["--kernel-regex", "kns=_kernel", sys.executable, str(Path(__file__).with_name(script)), *arguments]
    lib = str(Path(__file__).parents[1] / "lib")
    path = os.pathsep.join(filter(None, [lib, os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)


def check_clean(tool: str, done: subprocess.CompletedProcess) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert "right" in done.stdout
    clean = r"ERROR SUMMARY: 0 errors" if tool == "memcheck" else r"RACECHECK SUMMARY: 0 hazards displayed"
    assert re.search(clean, text), text[-3000:]


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize(
    "kernel, cache", [*((kernel, cache) for kernel in ("mma", "simt") for cache in ("bf16", "fp8")), ("mma", "v32")]
)
def test_a_small_decode_is_clean(kernel, cache, tool):
    check_clean(tool, sanitized(tool, "sanitized_decode.py", kernel, cache))


@pytest.fixture(scope="module")
def wgmma():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the Gluon kernels are for sm_90")


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_a_small_decode_in_gluon_is_clean(cache, wgmma):
    check_clean("memcheck", sanitized("memcheck", "sanitized_decode.py", "gluon", cache))


@pytest.fixture(scope="module")
def textbook_is_clean(wgmma) -> bool:
    """Whether racecheck takes a textbook hand-over by mbarrier for what it is, and tells it from a planted race.

    compute-sanitizer 2025.3.1 and 2026.4 do not: they report its store and its load, with a right result. One thread
    arrives for all, behind a barrier of its partition's warps. 2025.3.1 also reports what warp_specialize itself hands
    to the warps that it starts.
    """
    found = {}
    for what, result in (("early", "wrong"), ("textbook", "right")):
        done = sanitized("racecheck", "planted_handover.py", what)
        text = done.stdout + done.stderr
        assert result in done.stdout and done.returncode in (0, 9), text[-3000:]
        found[what] = pairs(text)
    assert textbook() in found["early"], "a race that racecheck has to see"
    return textbook() not in found["textbook"]


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_races_in_gluon_are_none_but_hand_overs_where_racecheck_does_not_follow_them(cache, textbook_is_clean):
    """Where the textbook is reported, the kernels' own hand-over may be, and nothing else.

    That it holds, test_gluon_handover_gpu.py shows.
    """
    done = sanitized("racecheck", "sanitized_decode.py", "gluon", cache)
    if textbook_is_clean:
        return check_clean("racecheck", done)
    text = done.stdout + done.stderr
    assert "right" in done.stdout and done.returncode in (0, 9), text[-3000:]
    assert pairs(text) <= handed_over(cache), text[-3000:]
