"""Kernels compiled ahead of the sweep on a GPU: what the first calls look for, and nothing is left to compile."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

FIRST_CALLS = """
import json, sys, torch, triton
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.shapes import shape_of
from capturebook.measure import variants
from capturebook.measure.ahead import compile_ahead

triton.knobs.cache.dir = sys.argv[1]
own = {name: {"kernel": name, "tuning": "pinned"} for name in ("simt", "auto")}
points = [
    {"variants": own, "shape": shape, "heads": heads, "cache": cache, "batch": batch, "context": 8192}
    for shape, cache, heads, batch in (
        ("flash", "fp8", 8, 1), ("flash", "fp8", 64, 64), ("flash", "bf16", 64, 8), ("v32", "v32", 128, 2),
    )
]
compile_ahead(points)
seen = []
triton.knobs.compilation.listener = lambda src, cache_hit, **rest: seen.append((src.name, cache_hit))
for p in points:
    lists = shape_of(p["shape"]).inputs(p["context"])
    inputs = make_inputs(0, p["batch"], p["heads"], cache=p["cache"], device="cuda", **lists)
    for variant in own.values():
        if not variants.missing(variant["kernel"], p["cache"], p["heads"], 0):
            variants.prepare(variant, p["heads"], p["batch"], p["cache"])(inputs)()
torch.cuda.synchronize()
print(json.dumps(seen))
"""


def test_first_calls_find_everything_compiled(tmp_path):
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, _ in seen} >= {"simt_kernel", "simt_fp8_kernel", "mma_fp8_kernel", "mma_v32_kernel"}
    assert [name for name, hit in seen if not hit] == []
