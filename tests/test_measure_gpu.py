"""What only a GPU can show: the loaded kernel is the one of the build row, timings come with correctness."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from capturebook.measure import floors, sweep
from capturebook.params import Params
from capturebook.probes import ProbePool

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    run = SimpleNamespace(path=tmp_path_factory.mktemp("run"), name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


LOADED = """
import json, torch
from capturebook.kernels.sparse_mla import decode, pinned
from capturebook.kernels.sparse_mla.examples import SHAPES, examples
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.op import tuner_of
from capturebook.measure import crosscompile, resources
from capturebook.measure.limits import parse_target

major, minor = torch.cuda.get_device_capability()
sm = parse_target(major * 10 + minor)
pairs = []
for kernel, heads, batch, cache in [(*shape, "bf16") for shape in SHAPES] + [("mma", 64, 8, "fp8")]:
    tuner = tuner_of(kernel, cache)
    pinned.pin(tuner, pinned.pinned_config(kernel, sm, heads, batch, cache))
    inputs = make_inputs(0, batch, heads, context=8192, device="cuda", window_slots=256, extra_slots=256, cache=cache)
    tuner.fn.device_caches.clear()
    decode(*inputs.args(), kernel=kernel)
    (compiled,) = tuner.fn.device_caches[torch.cuda.current_device()][0].values()
    name = f"{tuner.base_fn.__name__} heads={heads} batch={batch}"
    (example,) = [e for e in examples(sm, cache) if e.pinned and e.name == name]
    row = crosscompile.cached_row(example, sm, "")
    pairs.append([name, resources.loaded(compiled), {k: row[k] for k in ("registers", "stack", "spills", "shared")}])
print(json.dumps(pairs))
"""


def test_the_launched_kernel_is_the_one_of_the_row():
    """Registers, stack, spills and shared memory of what `decode` launched, against the row made without a GPU."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pairs = json.loads(done.stdout.splitlines()[-1])
    assert len(pairs) == 5
    assert [(name, loaded) for name, loaded, _ in pairs] == [(name, row) for name, _, row in pairs]


LIMITS = """
import torch
from triton.runtime import driver
from capturebook.measure.limits import TABLE, parse_target

p = torch.cuda.get_device_properties(0)
limits = TABLE[parse_target(p.major * 10 + p.minor)]
assert driver.active.utils.get_device_properties(0)["max_shared_mem"] == limits.shared_per_cta
assert p.shared_memory_per_multiprocessor == limits.shared_per_sm
assert p.regs_per_multiprocessor == limits.registers_per_sm
assert p.max_threads_per_multi_processor == limits.warps_per_sm * limits.warp_size
"""


def test_the_limits_of_this_gpu_are_those_of_the_table():
    done = subprocess.run([sys.executable, "-c", LIMITS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_floors_are_positive_rates_of_this_gpu(pool):
    (record,) = pool.run(floors.plan_floors(Params()))
    assert record.status == "pass", record.reason
    assert len(record.samples["copy"]) == len(record.samples["matmul"]) == 15
    assert record.payload["tb_s"] > 0 and record.payload["tflops"] > 0
    assert record.payload["source"] == floors.MEASURED


@pytest.mark.parametrize("tuning", ["live", "pinned"])
def test_a_sweep_point_is_checked_then_timed(pool, tuning):
    params = Params(batches=[8], contexts=[2048], samples=5, deadline=180.0)
    rates = {"tb_s": 1.0, "tflops": 100.0, "source": "test"}
    (record,) = pool.run(sweep.plan_sweep(params, rates, tuning=tuning))
    assert record.status == "pass", record.reason or record.root
    assert [(c.call, c.output, c.ok) for c in record.checks] == [
        (kernel, output, True) for kernel in ("simt", "mma") for output in ("out", "lse")
    ]
    assert {name: len(us) for name, us in record.samples.items()} == {"simt": 5, "mma": 5}
    assert record.payload["sets"] * 8 * 640 * 1024 >= 180e6
    for name, variant in record.payload["variants"].items():
        assert variant["kernel"] == name and "BLOCK_N=" in variant["config"]
        assert variant["median_us"] * variant["tokens_per_second"] == pytest.approx(8e6)


def test_a_sweep_point_of_the_fp8_cache(pool):
    params = Params(batches=[8], contexts=[2048], samples=5, deadline=180.0, cache="fp8")
    (record,) = pool.run(sweep.plan_sweep(params, {}, tuning="pinned"))
    assert record.status == "pass", record.reason or record.root
    assert {(c.call, c.ok) for c in record.checks} == {("simt fp8", True), ("mma fp8", True)}
    assert record.payload["sets"] * 8 * 640 * 585 >= 180e6
    assert {name: len(us) for name, us in record.samples.items()} == {"simt fp8": 5, "mma fp8": 5}


PEERS = ["gather_bmm", "sdpa", "flashmla"]


@pytest.mark.parametrize("shape, heads", [("flash", 8), ("hca", 64), ("window", 16), ("mixed", 64), ("pro", 128)])
def test_a_sweep_point_of_another_shape_beside_its_peers(pool, shape, heads):
    """torch's peers are right and timed; FlashMLA is, or is named with the reason where it is not installed."""
    options = {"shapes": [shape], "peers": PEERS, "tuning": "pinned"}
    params = Params(
        batches=[4],
        contexts=[8192],
        samples=5,
        deadline=180.0,
        heads=heads,
        cache="fp8",
        kernels=["mma"],
        options=options,
    )
    (record,) = pool.run(sweep.plan_sweep(params, {}))
    assert record.status == "pass", record.reason or record.root
    left = record.payload["left"]
    assert set(left) <= {"flashmla fp8"} and all("not installed" in reason for reason in left.values()), left
    assert set(record.samples) == {"mma fp8", *(f"{peer} fp8" for peer in PEERS)} - set(left)
    assert record.payload["heads"] == heads and record.payload["shape"] == shape


FLEX = """
import json
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.measure import variants

inputs = make_inputs(2, 4, 64, 2048, device="cuda")
setup = variants.prepare({"kernel": "flex_attention", "tuning": "none"}, 64, 4)
print(json.dumps(variants.verify("flex_attention", setup(inputs), inputs)))
"""


def test_flex_attention_is_right():
    """In a process of its own: this one must stay off the GPU, which the other tests of this file hold alone."""
    done = subprocess.run([sys.executable, "-c", FLEX], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    checks = json.loads(done.stdout.splitlines()[-1])
    assert [c["output"] for c in checks] == ["out", "lse"] and all(c["ok"] for c in checks)


WRONG = """
import json
from types import SimpleNamespace
from capturebook.measure import sweep, variants
from capturebook.params import Params

(probe,) = sweep.plan_sweep(Params(batches=[4], contexts=[2048], samples=5), {}, tuning="pinned")
right = variants.prepare

def planted(variant, heads, batch, cache):
    setup = right(variant, heads, batch, cache)
    if variant["kernel"] == "mma":
        return setup
    return lambda inputs: lambda: (setup(inputs)()[0] * 1.02, setup(inputs)()[1])

variants.prepare = planted
stages = []
result = sweep.run(SimpleNamespace(probe=probe, args=probe.args, seed=0, stage=stages.append))
print(json.dumps([result["status"], result["reason"], "samples" in result, "variants" in result["payload"], stages]))
"""


def test_a_wrong_variant_is_named_and_nothing_is_timed():
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    status, reason, samples, variants, stages = json.loads(done.stdout.splitlines()[-1])
    assert status == "wrong" and reason.startswith("simt: out is off by 0.0") and "mma" not in reason
    assert not samples and not variants and stages == ["build", "verify"]


OCCUPIED = """
import sys, torch
x = torch.ones(1, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_foreign_process_makes_the_timing_not_run(pool):
    other = subprocess.Popen([sys.executable, "-c", OCCUPIED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        (record,) = pool.run(sweep.plan_sweep(Params(batches=[1], contexts=[2048], seed=9, deadline=180.0), {}))
    finally:
        other.stdin.close()
        other.wait(30)
    assert record.status == "not_run" and "the GPU is shared with pid" in record.reason
    assert not record.samples
