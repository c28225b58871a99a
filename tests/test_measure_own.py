"""A user's own step in the sweep, as far as a CPU can tell. GPU: test_measure_own_gpu.py."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import own_inputs, own_step, own_sweep
from capturebook.measure.rows import sweep_points
from capturebook.params import Params
from capturebook.records import Record
from capturebook.report import conclusions, figures_sweep
from test_measure_recording import OWN, step


def described(target: str) -> list[str]:
    probe = own_sweep.plan_describe(Params(subject=target))
    assert probe.job == f"{own_sweep.__name__}:{own_sweep.describe.__name__}"
    found = own_sweep.describe(SimpleNamespace(probe=probe, stage=lambda name: None))
    assert found["status"] == "pass"
    return found["payload"]["takes"]


def test_the_sweep_has_a_point_for_each_size_that_build_takes():
    params = Params(subject=OWN, batches=[1, 8], contexts=[512, 2048], samples=7, seed=3, env={"A": "b"})
    takes = described(OWN)
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


def test_the_build_of_a_step_of_any_size_takes_everything():
    assert "context" in described(step("takes_everything"))


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


def test_the_floor_is_what_the_step_says_it_must_move():
    """A step that reads one row of a cache of many: its cost says so, and then what it computes is known too."""
    import planted_steps
    from capturebook.subjects.loader import SubjectError

    rates = {"tb_s": 2.0, "tflops": 1e-3, "source": "test"}
    inputs = planted_steps.draw(0)
    plain = own_sweep._floor(own_step.Side(planted_steps.right()), inputs, rates)
    assert (plain["bytes"], plain["flops"], plain["work"]) == (4 * (32 + 32), None, own_sweep.WORK)
    stated = planted_steps.right()
    stated.cost = lambda x: (x.nbytes // 32, 4 * x.numel())
    found = own_sweep._floor(own_step.Side(stated), inputs, rates)
    assert (found["bytes"], found["flops"], found["work"]) == (4, 128, own_sweep.STATED)
    assert found["floor_bound"] == "flops" and found["floor_us"] == pytest.approx(128 / 1e9 * 1e6)
    for bad in (12, (1.5, 2), (0, 5), (1, 2, 3), (True, 1), None):
        stated.cost = lambda x, bad=bad: bad
        with pytest.raises(SubjectError, match=r"cost: returned .*; allowed: \(bytes, flops\)"):
            own_sweep._floor(own_step.Side(stated), inputs, rates)


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


def test_what_compares_nothing_has_no_checks_and_a_check_says_true_or_false():
    import planted_contract
    from capturebook.subjects.loader import SubjectError

    def verified(built) -> list[dict]:
        variant = own_step.Variant("step", own_step.Side(built), built.fn)
        return own_step.verify([variant], built, [built.make_inputs(0)], None, {})

    assert verified(planted_contract.gives_nothing_finite()) == []
    assert [c["ok"] for c in verified(planted_contract.one_output_is_empty())] == [True] * 4
    with pytest.raises(SubjectError, match="check: returned tuple; allowed: a bool"):
        verified(planted_contract.check_says_why())


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
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


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
    assert (done["payload"]["subject"], done["payload"]["gpu"]) == (f"{GPU_STEPS}:plain", "NVIDIA H200")
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
