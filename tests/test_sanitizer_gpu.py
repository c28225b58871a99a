"""compute-sanitizer over one small decode of each path: no byte beyond a tensor, no race in shared memory."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not on PATH (it comes with the CUDA toolkit)"),
]


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize(
    "kernel, cache",
    [*((kernel, cache) for kernel in ("mma", "simt", "gluon") for cache in ("bf16", "fp8")), ("mma", "v32")],
)
def test_a_small_decode_is_clean(kernel, cache, tool):
    if kernel == "gluon" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the Gluon kernels are for sm_90")
    command = [SANITIZER, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
    # torch's own kernels, of which the inputs and the reference take many, are left alone
    command += ["--kernel-regex", "kns=_kernel", sys.executable]
    command += [str(Path(__file__).with_name("sanitized_decode.py")), kernel, cache]
    lib = str(Path(__file__).parents[1] / "lib")
    path = os.pathsep.join(filter(None, [lib, os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert "right" in done.stdout
    clean = r"ERROR SUMMARY: 0 errors" if tool == "memcheck" else r"RACECHECK SUMMARY: 0 hazards displayed"
    assert re.search(clean, text), text[-3000:]
