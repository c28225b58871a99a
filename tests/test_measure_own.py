"""A user's own step in the build check and the sweep, as far as a CPU can tell. GPU: test_measure_own_gpu.py."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import own_inputs, own_step, own_sweep
from capturebook.measure.build import BuildError, build_rows
from capturebook.measure.launches import RecordingError, record_step
from capturebook.measure.rows import sweep_points
from capturebook.measure.specialise import specialise
from capturebook.params import Params
from capturebook.probes import ProbePool
from capturebook.records import Record
from conftest import REPO

STEPS = Path(__file__).with_name("planted_own.py")
OWN = f"{REPO}/examples/own_kernel.py:build"


def step(name: str) -> str:
    return f"{STEPS}:{name}"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    path, records = tmp_path_factory.mktemp("run"), []
    run = SimpleNamespace(path=path, name="test", nonce="f00d", append=records.append, records=records)
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


def test_the_example_compiles_without_a_line_from_its_author(pool):
    """registers and occupancy are checked against ptxas and the cubin by the job itself; here: which rows there are."""
    built = build_rows(pool.run, [120], False, examples=OWN, step={"width": 2048}, cache="")
    assert [(r["kernel"], r["config"].split()[0], r["target"], r["pinned"], r["status"]) for r in built.rows] == [
        ("rms_norm", f"num_warps={warps}", "sm_120", warps == 4, "pass") for warps in (2, 4)
    ]
    assert all(row["registers"] > 0 and row["fits"] for row in built.rows)
    assert built.rows[0]["arguments"]["BLOCK"] == "=2048", "what build was given reaches the call"
    assert built.left == 1 and built.unseen == []


def arguments(name: str, sm: int = 90, **options) -> list[tuple]:
    recording = record_step(step(name), options, sm)
    return [(e.name, e.config, e.pinned, specialise(e.kernel, e.args, e.config, sm)) for e in recording.examples]


def test_specialisation_is_that_of_the_call():
    (odd,) = arguments("shifted", offset=1)
    (even,) = arguments("shifted", offset=8)
    assert odd[3].arguments()["x"] == "*bf16" and even[3].arguments()["x"] == "*bf16 %16"
    assert odd[2], "the only configuration is the pinned one"
    assert odd[3].options.num_warps == 8 and odd[1].num_warps == 8


def test_every_launch_that_compiles_differently_is_one_example():
    names = [name for name, *_ in arguments("launches_thrice")]
    assert names == ["scale", "scale (call 2)"], "two of the three launches compile alike"
    (found,) = arguments("warms_up")
    assert found[3].arguments()["BLOCK"] == "=1024", "what is compiled ahead is no launch"


def test_heuristics_prunes_and_hooks_are_followed():
    found = arguments("tuned")
    assert [config.kwargs["BLOCK"] for _, config, *_ in found] == [64, 128], "256 is pruned for this capability"
    assert [config.kwargs["BLOCK"] for _, config, *_ in arguments("tuned", sm=120)] == [64, 128, 256]
    assert [s.arguments()["HALF"] for *_, s in found] == ["=32", "=64"]
    assert [pinned for *_, pinned, _ in found] == [False, True]
    assert found[0][3].arguments()["mode"] == "=1", "a configuration's pre_hook sets what the kernel is compiled for"


def test_a_pinned_entry_that_is_no_configuration_is_added():
    found = arguments("pinned_elsewhere")
    assert [(c.kwargs["BLOCK"], c.num_warps, pinned) for _, c, pinned, _ in found] == [
        (64, 4, False),
        (128, 4, False),
        (512, 2, True),
    ]


def test_torch_ops_between_launches_work_on_what_was_never_computed():
    assert [name for name, *_ in arguments("ops_between")] == ["scale", "add"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: cuda is cuda")
def test_a_step_for_cuda_is_recorded_on_the_cpu():
    (found,) = arguments("says_cuda")
    assert found[3].arguments()["x"] == "*fp32 %16"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: cuda is cuda")
def test_the_kernel_of_the_readme_is_recorded_as_it_stands(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "mine.py").write_text(block)
    (found,) = record_step(f"{tmp_path}/mine.py:build", {}, 90).examples
    assert found.name == "double_kernel" and found.args["x"].shape == (8, 4096)


def test_launches_in_operators_and_compiled_functions_are_seen():
    recording = record_step(step("launches_in_an_operator"), {}, 90)
    assert [e.name for e in recording.examples] == ["scale"] and recording.unseen == []


def test_a_tensor_descriptor_keeps_its_block():
    (found,) = arguments("takes_descriptors")
    assert "512" in found[3].arguments()["source"]


@pytest.mark.parametrize(
    "name",
    [
        "branches_on_a_result",
        "branches_on_an_operators_result",
        "branches_on_its_own_buffer",
        "lists_a_result",
        "result_decides_a_shape",
    ],
)
def test_control_flow_on_a_value_that_no_launch_computed_is_one_clear_line(name):
    with pytest.raises(RecordingError) as caught:
        record_step(step(name), {}, 90)
    text = str(caught.value)
    assert "\n" not in text and "reads a value that a launch would have computed" in text


def test_control_flow_on_inputs_is_the_steps_own_business():
    assert [name for name, *_ in arguments("branches_on_an_input")] == ["scale"]


def test_what_was_not_seen_is_said():
    recording = record_step(step("hides_launches"), {}, 90)
    assert [e.name for e in recording.examples] == ["scale"]
    assert recording.unseen == [
        "kernel add is declared and was not launched by the call",
        "operator planted_own.double.default launched no Triton kernel here",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, and the operator runs on it")
def test_an_operator_for_cuda_alone_is_named():
    with pytest.raises(RecordingError, match="could not be called.*NotImplementedError.*planted_own::on_cuda"):
        record_step(step("needs_cuda"), {}, 90)


def test_a_step_without_launches_or_that_raises_is_one_line_of_the_build(pool):
    with pytest.raises(BuildError, match="there is nothing to build; kernel mma_kernel is declared"):
        build_rows(pool.run, [90], False, examples="capturebook.subjects.sparse_mla:build", step={"batch": 1}, cache="")
    with pytest.raises(BuildError, match="could not be called with its launches recorded.*ValueError: not today"):
        build_rows(pool.run, [90], False, examples=step("raises"), step={}, cache="")
    with pytest.raises(BuildError, match="build takes no 'depth'; allowed: batch, width"):
        build_rows(pool.run, [90], False, examples=OWN, step={"depth": 3}, cache="")


def test_nothing_stays_patched():
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    before = JITFunction.run, Autotuner.run, torch.cuda.get_device_capability, driver._active
    record_step(step("ops_between"), {}, 90)
    with pytest.raises(RecordingError):
        record_step(step("raises"), {}, 90)
    assert before == (JITFunction.run, Autotuner.run, torch.cuda.get_device_capability, driver._active)
    assert torch.empty(3).device.type == "cpu" and not torch.are_deterministic_algorithms_enabled()


def test_the_command_line_builds_a_users_file(tmp_path):
    """--json on stdout, everything else on stderr; the record names the step."""
    import json
    import os

    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CAPTUREBOOK_ROOT": str(planted_root(tmp_path / "root"))}
    command = [sys.executable, "-m", "capturebook", "build", OWN, "--targets", "90", "--option", "width=1024", "--json"]
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [(r["kernel"], r["status"]) for r in json.loads(done.stdout)] == [("rms_norm", "pass")] * 3
    bad = subprocess.run(
        [sys.executable, "-m", "capturebook", "build", "--option", "width=8"], env=env, capture_output=True, text=True
    )
    assert bad.returncode == 2 and "--option: given 'width=8'; allowed: with a TARGET" in bad.stderr


def planted_root(path: Path) -> Path:
    """A repository that runs go to, so that none is left in the real one."""
    for name in ("notebooks", "params"):
        (path / name).mkdir(parents=True)
    (path / "params" / "hypotheses").symlink_to(REPO / "params" / "hypotheses")
    return path


def described(pool, target: str) -> list[str]:
    (record,) = pool.run([own_sweep.plan_describe(Params(subject=target))])
    assert record.status == "pass", record.root
    return record.payload["takes"]


def test_the_sweep_has_a_point_for_each_size_that_build_takes(pool):
    params = Params(subject=OWN, batches=[1, 8], contexts=[512, 2048], samples=7, seed=3, env={"A": "b"})
    takes = described(pool, OWN)
    assert takes == ["batch"]
    probes = own_sweep.plan_own_sweep(params, {"width": 64}, takes, "default", {})
    assert [p.subject.options["build"] for p in probes] == [{"width": 64, "batch": 1}, {"width": 64, "batch": 8}]
    assert all(p.exclusive and p.seed == 3 and p.env == {"A": "b"} and p.args["samples"] == 7 for p in probes)
    names = ["step", "twin", "step, compile=default", "twin, compile=default"]
    assert list(probes[0].subject.options["variants"]) == names
    both = own_sweep.plan_own_sweep(params, {}, ["batch", "context"], "", {})
    assert [(p.subject.options["batch"], p.subject.options["context"]) for p in both] == [
        (1, 512),
        (8, 512),
        (1, 2048),
        (8, 2048),
    ]
    assert list(both[0].subject.options["variants"]) == ["step", "twin"]
    (one,) = own_sweep.plan_own_sweep(params, {"width": 64}, [], "", {})
    assert one.subject.options["build"] == {"width": 64} and one.subject.options["batch"] == 1


def test_the_build_of_a_step_of_any_size_takes_everything(pool):
    assert "context" in described(pool, step("takes_everything"))


def test_points_of_a_users_step_from_records_alone():
    (probe,) = own_sweep.plan_own_sweep(Params(subject=OWN), {}, [], "default", {})
    payload = {"batch": 1, "context": None, "bytes": 1000, "flops": None, "floor_us": None}
    left = {"step, compile=default": "does not compile: E: no"}
    payload["left"] = {**left, **dict.fromkeys(("twin", "twin, compile=default"), "the step has no twin")}
    payload["variants"] = {"step": {"kernel": "step", "tuning": "live", **own_sweep.speed([2.0, 2.0], payload)}}
    common = dict(run="r", probe="p", nonce="n", kind="sweep", subject=probe.subject, started="", ended="")
    points = sweep_points([Record(status="pass", samples={"step": [2.0, 2.0]}, payload=payload, **common)])
    assert [(p["variant"], p["status"], p["reason"], p["us"]) for p in points] == [
        ("step", "pass", "", [2.0, 2.0]),
        ("twin", "skipped", "the step has no twin", []),
        ("step, compile=default", "skipped", "does not compile: E: no", []),
        ("twin, compile=default", "skipped", "the step has no twin", []),
    ]
    assert points[0]["tflops"] is None and points[0]["gbps"] == pytest.approx(0.5)
    from capturebook.report import conclusions, figures_sweep

    status, text = conclusions.sweep(points)
    assert status == "pass" and "by step at batch 1." in text
    shown = figures_sweep.sweep(points)
    assert "the step has no twin" in shown.html and "context None" not in shown.html


def test_input_sets_are_cold_or_it_is_said():
    l2 = 60_000_000
    assert own_inputs.sets_for(20_000_000, l2, 100 << 30, alone=False) == 9
    assert own_inputs.sets_for(20_000_000, l2, 50_000_000, alone=False) == 2
    assert own_inputs.sets_for(100, l2, 100 << 30, alone=False) == own_inputs.MOST_SETS
    assert own_inputs.sets_for(100, l2, 100 << 30, alone=True) == own_inputs.ALONE_SETS
    assert own_inputs.warm(180_000_000, 9, l2) == []
    (line,) = own_inputs.warm(1_000_000, 9, l2)
    assert "inputs of 9 calls are 1.0 MB, L2 holds 60" in line


def test_bytes_are_those_of_inputs_outputs_and_state_once():
    """float32: x [32], the state [1], the output [32]; a tensor that comes again counts once."""
    import planted_steps

    side = own_step.Side(planted_steps.counts_in_state())
    inputs = planted_steps.draw(0)
    assert own_inputs.traffic(side, inputs) == 4 * (32 + 1 + 32)
    assert own_inputs.distinct_bytes([inputs, inputs]) == 4 * 32
    assert side.alone and not own_step.Side(planted_steps.right()).alone


def checked(built, variant=None, fn=None) -> list[bool]:
    side = own_step.Side(built)
    one = own_step.Variant("step", side, fn or built.fn)
    return [c.ok for c in own_step.check(one, built, built.make_inputs(1), "call")]


def test_a_variant_is_held_against_the_steps_truth():
    import planted_steps

    assert checked(planted_steps.right()) == [True]
    assert checked(planted_steps.off_by_a_percent()) == [False]
    assert checked(planted_steps.nan_once()) == [False]
    assert checked(planted_steps.counts_in_state()) == [True, True]
    right = planted_steps.right()
    assert checked(right, fn=lambda x: x * 2.02) == [False], "a compiled variant or a twin, against the same reference"
    unjudged = planted_steps.Step(fn=lambda x: x * 2, make_inputs=planted_steps.draw)
    assert checked(unjudged) == [True] and checked(unjudged, fn=lambda x: x * 2.02) == [False]


def test_each_call_begins_from_the_first_state_with_its_own_number():
    import planted_steps

    seen = []
    built = planted_steps.counts_in_state()
    built.advance = seen.append
    side = own_step.Side(built)
    for _ in range(3):
        side.begin()
        assert built.state()["total"].item() == 0.0
        side.call(built.fn, planted_steps.draw(0))
    assert seen == [0, 1, 2]


GPU_STEPS = Path(__file__).with_name("planted_own_gpu.py")


@pytest.fixture
def no_gpu_needed(monkeypatch):
    """What only a GPU can do, replaced: a capture calls, a time is a count. Which variants get that far is not."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: test_measure_own_gpu.py asks it")
    from capturebook.measure import timing

    def capture(calls, keep=False):
        for call in calls:
            call()
        return SimpleNamespace(raw_cuda_graph=lambda: 0)

    def time_all(calls, *rest):
        return {name: [float(len(made))] * rest[-1] for name, made in calls.items()}

    monkeypatch.setattr(own_sweep, "foreign_processes", list)
    monkeypatch.setattr(timing, "l2_bytes", lambda: 1_000_000)
    monkeypatch.setattr(timing, "capture", capture)
    monkeypatch.setattr(own_sweep, "describe_graph", lambda handle: {"kernels": {"one": 2, "another": 1}})
    monkeypatch.setattr(timing, "time_variants", time_all)
    monkeypatch.setattr(timing, "time_single", time_all)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 33, 1 << 33))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def swept(name: str, compiled: str = "", **args) -> dict:
    params = Params(subject=f"{GPU_STEPS}:{name}", samples=5)
    (probe,) = own_sweep.plan_own_sweep(params, {}, [], compiled, {"tb_s": 1.0, "tflops": 1.0, "source": "test"})
    ctx = SimpleNamespace(probe=probe, args={**probe.args, **args}, seed=0, run=None, folders=(), stage=lambda n: None)
    return own_sweep.run(ctx)


def test_a_point_is_checked_then_timed(no_gpu_needed):
    done = swept("plain", "eager")
    assert done["status"] == "pass" and done["payload"]["left"] == {}
    assert list(done["samples"]) == ["step", "twin", "step, compile=eager", "twin, compile=eager"]
    assert done["samples"]["step"] == [687.0] * 5, "180 MB of inputs of 256 KiB each"
    assert done["payload"]["floor_us"] == pytest.approx(2 * (1 << 18) / 1e6) and done["payload"]["left_out"] == []
    assert done["payload"]["variants"]["step"]["gbps"] == pytest.approx(2 * (1 << 18) / 687e-6 / 1e9)
    assert done["payload"]["method"] == own_sweep.MANY and len(done["checks"]) == 8
    shown = {name: (variant["kernels"], variant["config"]) for name, variant in done["payload"]["variants"].items()}
    assert (
        shown["step"] == (3, "3 kernels a call")
        and shown["twin, compile=eager"][1] == "compile=eager; 3 kernels a call"
    )


@pytest.mark.parametrize("name", ["fills_a_cache", "host_works_between"])
def test_state_and_host_work_make_a_step_be_timed_call_by_call(no_gpu_needed, name):
    done = swept(name)
    assert done["status"] == "pass", done
    assert done["payload"]["method"] == own_sweep.SINGLE and done["samples"] == {"step": [4.0] * 5}
    assert done["payload"]["left"] == {"twin": "the step has no twin"}


def test_what_cannot_be_timed_is_left_out_or_skipped_with_its_root(no_gpu_needed, monkeypatch):
    from capturebook.measure import timing

    left = swept("does_not_compile", "default")
    assert left["status"] == "pass" and list(left["samples"]) == ["step"]
    assert left["payload"]["left"]["step, compile=default"].endswith("RuntimeError: this one does not compile")
    assert swept("drives_itself")["reason"].startswith("the step drives itself")
    assert swept("nothing_to_compare")["reason"].startswith("nothing of the step can be compared")
    assert swept("plain", memory_gib=0.0001)["reason"].startswith("needs 0.0 GiB")

    def refuse(calls, keep=False):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing") from ValueError("no")

    monkeypatch.setattr(timing, "capture", refuse)
    skipped = swept("plain")
    assert skipped["status"] == "skipped" and "samples" not in skipped
    assert skipped["reason"] == "the step cannot be captured: ValueError: no"


def test_a_wrong_variant_leaves_nothing_timed(no_gpu_needed):
    done = swept("wrong_twin")
    assert done["status"] == "wrong" and done["reason"].startswith("call of twin: out is off by 0.0")
    assert "samples" not in done and "variants" not in done["payload"]
