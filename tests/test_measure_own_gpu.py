"""A user's own step on a GPU: what is launched is what the build check compiled, and the sweep times it. About 40 s.

python -m pytest -m gpu tests/test_measure_own_gpu.py
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from capturebook.measure import own_inputs, own_sweep
from capturebook.measure.rows import sweep_points
from capturebook.params import Params
from capturebook.probes import ProbePool
from conftest import REPO

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
STEPS = Path(__file__).with_name("planted_own_gpu.py")
OWN = f"{REPO}/examples/own_kernel.py:build"
RATES = {"tb_s": 1.0, "tflops": 100.0, "source": "test"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    run = SimpleNamespace(path=tmp_path_factory.mktemp("run"), name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


def swept(pool, target, takes=(), compiled="", **more):
    target = target if ":" in target else f"{STEPS}:{target}"
    params = Params(subject=target, batches=[8], samples=5, deadline=120.0, **more)
    (record,) = pool.run(own_sweep.plan_own_sweep(params, {}, list(takes), compiled, RATES))
    return record


def test_the_example_is_checked_then_timed_beside_its_twin_and_itself_compiled(pool):
    record = swept(pool, OWN, ["batch"], "default")
    assert record.status == "pass", record.reason or record.root
    names = ["step", "twin", "step, compile=default", "twin, compile=default"]
    assert record.payload["left"] == {} and {n: len(us) for n, us in record.samples.items()} == dict.fromkeys(names, 5)
    assert len(record.checks) == 8 and all(check.ok for check in record.checks)
    assert record.payload["bytes"] == 2 * (8 * 4096 * 2 + 4096), "x in, out out, weight in, bf16"
    assert record.payload["sets"] == own_inputs.MOST_SETS and record.payload["left_out"]
    assert record.payload["floor_us"] == pytest.approx(record.payload["bytes"] / 1e12 * 1e6)
    points = sweep_points([record])
    assert [p["variant"] for p in points] == names and all(p["median_us"] > 0 and p["tflops"] is None for p in points)
    assert points[0]["config"].startswith("rms_norm num_warps=") and points[0]["config"].endswith("; 1 kernel a call")
    assert record.payload["variants"]["twin"]["kernels"] > record.payload["variants"][names[3]]["kernels"] >= 1
    assert all(p["median_us"] * p["tokens_per_second"] == pytest.approx(8e6) for p in points)


def test_inputs_are_cold_where_memory_allows(pool):
    record = swept(pool, f"{STEPS}:plain", ["batch"])
    assert record.status == "pass", record.reason or record.root
    assert record.payload["left_out"] == [] and record.payload["sets"] * 8 * 4 * (1 << 14) >= 180e6
    small = swept(pool, f"{STEPS}:plain", ["batch"], memory_gib=0.002)
    assert (
        small.status == "pass" and small.payload["sets"] == 4 and "may be found there" in small.payload["left_out"][0]
    )
    none = swept(pool, f"{STEPS}:plain", ["batch"], memory_gib=0.0001)
    assert none.status == "skipped" and none.reason.startswith("needs 0.0 GiB of GPU memory")


@pytest.mark.parametrize("name", ["fills_a_cache", "host_works_between"])
def test_state_and_host_work_are_timed_call_by_call(pool, name):
    record = swept(pool, name)
    assert record.status == "pass", record.reason or record.root
    assert record.payload["method"] == own_sweep.SINGLE and len(record.samples["step"]) == 5
    assert record.payload["left"] == {"twin": "the step has no twin"}


def test_a_step_that_cannot_be_captured_is_skipped_with_its_root(pool):
    record = swept(pool, "reads_on_the_host")
    assert record.status == "skipped" and not record.samples
    assert record.reason == "the step cannot be captured: 900 cudaErrorStreamCaptureUnsupported"


def test_a_wrong_twin_leaves_nothing_timed(pool):
    record = swept(pool, "wrong_twin")
    assert record.status == "wrong" and record.reason.startswith("call of twin: out is off by 0.0")
    assert not record.samples and "variants" not in record.payload


LOADED = """
import importlib.util, json, sys, torch
from capturebook.measure import crosscompile, resources
from capturebook.measure.launches import record_step, unwrapped
from capturebook.measure.limits import parse_target

target = sys.argv[1]
major, minor = torch.cuda.get_device_capability()
sm = parse_target(major * 10 + minor)
(example,) = [e for e in record_step(target, {}, sm).examples if e.pinned]
row = crosscompile.cached_row(example, sm, "")
module = sys.modules["own_kernel"]
kernel = module.rms_norm
kernel.configs = [config for config in kernel.configs if config.num_warps == 4]
step = module.build()
inputs = step.make_inputs(0)
out = step.fn(*inputs)
want = step.reference(*inputs)
assert (out.double() - want).abs().max() <= step.tolerance * want.abs().max(), "launches are made again afterwards"
(compiled,) = unwrapped(kernel).device_caches[torch.cuda.current_device()][0].values()
print(json.dumps([resources.loaded(compiled), {k: row[k] for k in ("registers", "stack", "spills", "shared")}]))
"""


def test_the_recorded_call_compiles_to_the_kernel_that_is_launched():
    done = subprocess.run([sys.executable, "-c", LOADED, OWN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded, row = json.loads(done.stdout.splitlines()[-1])
    assert loaded == row
