"""The Step contract on a CPU: what a user may hand over, and what a breach is told as."""

import re
import threading
from pathlib import Path

import pytest
import torch

from capturebook.probes import Probe, ProbePool
from capturebook.probes.calls import Calls
from capturebook.probes.handle import Handle, place
from capturebook.probes.threads import _internal
from capturebook.records import Arm, Subject
from capturebook.subjects import Step
from capturebook.subjects.loader import SubjectError, as_step
from test_probes import Run

STEPS = Path(__file__).parent / "planted_contract.py"


@pytest.fixture(scope="module")
def pool(tmp_path_factory, probe_server):
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        yield pool


def asked(name, args=None, deadline=60.0, **factors):
    target = name if ":" in str(name) else f"{STEPS}:{name}"
    arm = Arm(**{"capture": "none", **factors})
    return Probe(
        kind="step", subject=Subject(target=target), arm=arm, args={"device": "cpu", **(args or {})}, deadline=deadline
    )


def ask(pool, name, **kw):
    return pool.run([asked(name, **kw)])[0]


RIGHT = (
    "module_with_a_cache", "module_and_inputs", "tuple_of_one", "writes_its_out_argument", "odd_inputs", "trains",
    "random_numbers", "random_and_checked", "rounds_to_bfloat16",
)  # fmt: skip


def test_what_a_user_may_hand_over_passes(pool):
    records = pool.run([asked(name) for name in RIGHT])
    assert {name: (r.status, r.reason) for name, r in zip(RIGHT, records)} == dict.fromkeys(RIGHT, ("pass", ""))
    assert all(len(r.checks) >= 3 for r in records)


def test_a_step_that_asks_for_a_gpu_is_skipped_without_one(pool):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for record in pool.run([asked("built_for_a_gpu"), asked("moves_to_a_gpu")]):
        assert record.status == "skipped"
        assert record.reason == "the step's own code asks for a CUDA GPU, and this machine has none"


def test_outputs_of_a_module_are_named_by_their_path_and_its_buffers_are_compared(pool):
    record = ask(pool, "module_with_a_cache")
    assert {c.output for c in record.checks} == {"y", "sums.0", "sums.1", "state.total"}


def test_compiled_random_numbers_are_others_and_no_fault():
    """Inductor draws other numbers than eager code (here a stand-in does); a wrong shape stays wrong all the same."""
    step = Step(fn=lambda x: x + torch.rand(4), make_inputs=lambda seed: (torch.full((4,), float(seed)),))
    for fn, right in ((lambda x: x + torch.rand(8)[4:], True), (lambda x: (x + torch.rand(8)[4:])[:2], False)):
        for arm, expected in ((Arm(compile="default"), right), (Arm(), False)):
            calls = Calls(step, arm, 0, torch.device("cpu"), [])
            calls.eager(fn, "call 1")
            calls.close()
            assert all(check.ok for check in calls.checks) is expected
            assert ("only shape and finiteness" in " ".join(calls.caveats)) is expected


def test_a_state_that_changes_shape_is_named_and_the_calls_are_right(pool):
    record = ask(pool, "grows_its_state")
    assert record.status == "pass"
    assert record.effective["state_reshaped"]["cache"] == [[5, 8], [6, 8]]


def test_a_step_that_is_not_deterministic_is_read_as_such(pool):
    record = ask(pool, "not_deterministic")
    assert (record.status, record.effective["deterministic"], record.effective["random"]) == ("wrong", False, False)


def test_without_a_tolerance_the_dtype_decides_and_without_a_comparison_it_is_said(pool):
    off, nothing = pool.run([asked("is_four_per_cent_off"), asked("changes_nothing")])
    assert off.status == "wrong"
    assert off.checks[0].tolerance == 2e-2
    assert (nothing.status, nothing.caveats) == ("pass", ["nothing was compared: only that the step ran is known"])


def test_a_reference_without_a_finite_value_compares_nothing_and_it_is_said(pool):
    nothing, some = pool.run([asked("gives_nothing_finite"), asked("one_output_is_empty")])
    assert (nothing.status, nothing.caveats) == ("pass", ["nothing was compared: only that the step ran is known"])
    assert (some.status, some.caveats) == ("pass", ["not compared, since no call gives it a finite value: out0"])
    assert {(c.output, c.error) for c in some.checks} == {("out0", None), ("out1", 0.0)}


def test_what_a_step_keeps_without_declaring_it_is_no_chance(pool):
    record = ask(pool, "keeps_a_hidden_count")
    assert (record.status, record.reason.partition(":")[0]) == ("wrong", "warm-up 2")
    assert (record.effective["deterministic"], record.effective["random"]) == (True, False)


BROKEN = {
    "dtype_varies": "make_inputs: dtype of input 0 is torch.float64 for seed 1; before: torch.float32",
    "strides_vary": "make_inputs: strides of input 0 is (1, 4) for seed 1; before: (8, 1)",
    "device_varies": "make_inputs: device of input 0 is meta for seed 1; before: cpu",
    "count_varies": "make_inputs: 2 inputs for seed 1, 1 inputs before",
    "reference_gives_more": "reference: gives 'out2', which fn does not return; it returns out0, out1",
    "tolerance_is_short": "tolerance: 1 given; output 'out1' is number 2",
    "needs_a_width": "options: build needs 'width'; given: none",
    "reference_gives_text": "reference: returned str; allowed: tensor, tuple, list, dict or None",
    "check_says_why": "check: returned tuple; allowed: a bool",
    "check_says_nothing": "check: returned NoneType; allowed: a bool",
    "state_is_a_copy": "state: 'n' is a copy; allowed: the tensor that the step itself reads",
    "state_is_a_list": "state: returned list; allowed: {name: tensor}",
}


def test_a_broken_contract_is_one_clear_line(pool):
    records = pool.run([asked(name) for name in BROKEN])
    assert {n: (r.status, r.root.type, r.root.text) for n, r in zip(BROKEN, records)} == {
        name: ("fail", "SubjectError", text) for name, text in BROKEN.items()
    }


def test_a_step_may_say_which_factors_it_has(pool):
    has, has_not = pool.run([asked("takes_anything", batch=2), asked("takes_anything", overlap=True)])
    assert has.status == "pass"
    assert (has_not.status, has_not.reason) == ("skipped", "the subject has no factor 'overlap'")


def test_what_a_reference_raises_is_told_as_the_references(pool):
    record = ask(pool, "reference_raises")
    assert record.chain[0].text == "reference: raised KeyError: 'table'"
    assert (record.root.type, record.root.frames[-1].function) == ("KeyError", "reference")
    assert ask(pool, "returns_a_number").root.text.startswith("step: fn returned float")


def test_a_build_that_ends_by_itself_is_placed_there(pool):
    names = ("build_exits", "build_leaves", "build_kills", "build_raises")
    exits, leaves, kills, raises = pool.run([asked(n) for n in names])
    hangs = ask(pool, "build_hangs", deadline=2.0)
    assert (hangs.status, hangs.stage) == ("timeout", "build")
    line = 1 + STEPS.read_text().splitlines().index("    time.sleep(600)")
    assert re.fullmatch(
        rf"no end within 2 s; it was at build, in build_hangs, planted_contract\.py:{line}", hangs.reason
    )
    assert (exits.root.type, leaves.reason, kills.reason) == (
        "SystemExit", "died: exit code 4 at build, without a result", "died: signal 9 (SIGKILL) at build"
    )  # fmt: skip
    assert (raises.stage, raises.root.text, raises.root.frames[-1].tag) == ("build", "no weights", "subject")


def test_an_exception_that_cannot_say_its_text_is_told_by_its_type(pool):
    record = ask(pool, "raises_what_has_no_text")
    assert (record.status, record.stage, [link.type for link in record.chain]) == (
        "fail",
        "build",
        ["Mute", "ValueError"],
    )
    assert record.chain[0].text == "<its text cannot be made: RuntimeError: no words>"
    assert record.chain[0].frames[-1].function == "raises_what_has_no_text" and record.root.text == "the cause"


def test_an_import_error_is_told_with_its_file(pool, tmp_path):
    (tmp_path / "needs_more.py").write_text("import no_such_library\n\ndef build():\n    pass\n")
    record = ask(pool, f"{tmp_path}/needs_more.py:build")
    assert (record.status, record.stage, record.root.type) == ("fail", "build", "ModuleNotFoundError")
    assert record.root.frames[-1].file.endswith("needs_more.py")


def test_threads_of_the_subject_are_named_native_ones_too(pool):
    record = ask(pool, "has_threads")
    assert record.status == "pass"
    assert [name.partition(" ")[0] for name in record.effective["threads"]] == ["subject-loader", "native"]


def plain(**fields):
    return Step(**{"fn": lambda x: x, "make_inputs": lambda seed: (torch.ones(1),), **fields})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "subject: build returned NoneType; allowed: a Step, or (callable, inputs)"),
        (torch.nn.Linear(2, 2), "subject: build returned Linear; allowed: a Step, or (callable, inputs)"),
        (plain(fn=3), "step: fn is int; allowed: a callable"),
        (plain(make_inputs=None), "step: make_inputs is NoneType; allowed: a callable"),
        (plain(state={"k": torch.ones(1)}), "step: state is dict; allowed: a callable"),
        (plain(around=torch.no_grad()), "step: around is a context manager; allowed: a callable that makes a new one"),
        (plain(tolerance="loose"), "step: tolerance 'loose'; allowed: numbers from 0"),
        (plain(tolerance={"out": -1.0}), "step: tolerance -1.0; allowed: numbers from 0"),
        (plain(tolerance=True), "step: tolerance True; allowed: numbers from 0"),
        (plain(tolerance=[1e-3, False]), "step: tolerance False; allowed: numbers from 0"),
        (plain(tolerance=float("nan")), "step: tolerance nan; allowed: numbers from 0"),
        (plain(twin=torch.relu), "step: twin is builtin_function_or_method; allowed: a Step, or (callable, inputs)"),
        (plain(twin=plain(reference=1.0)), "step: reference is float; allowed: a callable"),
    ],
)
def test_a_field_that_is_of_another_kind_is_told_before_it_is_used(value, says):
    with pytest.raises(SubjectError) as raised:
        as_step(value)
    assert str(raised.value).startswith(says)


def test_fields_of_every_allowed_kind():
    given = plain(around=torch.enable_grad, tolerance=[1, 1e-3], twin=(torch.relu, torch.ones(2)))
    assert as_step(given) is given
    assert as_step(plain(tolerance={"a": 0.0})).around is None


def test_an_output_of_another_shape_is_told_with_both(pool):
    record = ask(pool, "reference_of_another_shape")
    assert (record.status, record.caveats) == ("wrong", ["out has the shape [4], and should have [2]"])


def test_control_characters_of_a_step_s_error_are_spelt_out(pool):
    root = ask(pool, "raises_control_characters").root
    assert root.text == "\\x1b]0;title\\x07 red\\x1b[31m\\x9b2J \\x0d over\nnext line"
    assert not [c for c in root.text if ord(c) < 32 and c not in "\n\t"]


def test_torchs_own_threads_are_not_the_subjects():
    assert _internal(threading.Thread(target=torch.compile, name="Thread-1"))
    assert not _internal(threading.Thread(target=handle, name="Thread-2"))


def test_the_trivial_stand_in_runs_beside_the_subjects_threads(pool):
    record = ask(pool, "has_threads", args={"trivial": True})
    assert (record.status, record.payload, len(record.effective["threads"])) == ("pass", {"trivial": True}, 2)


def test_the_guard_that_compiles_a_step_anew_is_named(pool):
    record = ask(pool, "compiled_anew_each_time", compile="eager")
    assert record.status == "pass"
    assert "word" in record.effective["recompiles"]
    assert [e for e in record.events if e.kind == "recompile" and "word" in e.what and e.data.get("same_shape")]
    assert ask(pool, "tuple_of_one", compile="eager").effective["recompiles"] == ""


def test_one_counter_runs_over_calls_and_the_capture_and_can_be_frozen_before_it():
    def numbers(freeze):
        seen = []
        step = Step(fn=lambda x: x, make_inputs=lambda seed: (torch.ones(1),), advance=seen.append)
        calls = Calls(step, Arm(capture="none"), 0, torch.device("cpu"), [], freeze)
        calls.warm_up(step.fn, "warm-up 1")
        calls.warm_up(step.fn, "warm-up 2")
        calls.prepare_capture()
        calls.eager(step.fn, "call 1")
        calls.close()
        return seen

    assert numbers(None) == [0, 1, 2, 3]
    assert numbers(2) == [2, 2, 2, 3]


def test_a_step_that_forgot_the_gpu_is_known_by_where_its_tensors_are():
    def on_host(**fields):
        step = plain(**fields)
        calls = Calls(step, Arm(), 0, torch.device("cpu"), [])
        calls.capture(step.fn)
        return calls.all_on_host()

    elsewhere = torch.ones(1, device="meta")
    assert on_host()
    assert not on_host(state=lambda: {"k": elsewhere})
    assert not on_host(fn=lambda x: elsewhere)
    assert not on_host(fn=lambda x: None), "what has no output may work on memory that nobody sees"


class _Ctx:
    """The part of a probe's context that a handle uses."""

    def __init__(self):
        self.probe, self.seed, self.fields, self.stages = asked("trains"), 5, {}, []
        self.stage = self.stages.append


class _NoCapture:
    last, prepare = None, []


def handle():
    step = Step(fn=lambda x: x, make_inputs=lambda seed: (torch.ones(1),), tolerance=1e-3)
    return Handle(_Ctx(), Calls(step, Arm(), 0, torch.device("cpu"), []), _NoCapture(), step.fn)


def test_a_handles_phases_are_stages_and_its_checks_are_recorded():
    h = handle()
    with h.phase("warm-up"):
        assert h.check((torch.ones(2), torch.zeros(2)), (torch.ones(2), torch.zeros(2)))
    with h.phase("prime the events"):
        assert not h.check({"y": torch.ones(2)}, {"y": torch.full((2,), 1.5)})
    assert h.check(torch.equal(torch.ones(1), torch.ones(1)), True)
    assert h._ctx.stages == ["warmup"] * 4
    assert [(c.call, c.output, c.ok) for c in h.checks] == [
        ("warm-up 1", "out0", True), ("warm-up 1", "out1", True), ("warm-up 3", "y", False), ("warm-up 4", "out", True)
    ]  # fmt: skip
    with pytest.raises(SubjectError, match="before any capture"):
        h.replay()
    with pytest.raises(SubjectError, match="drive: want of h.check is str; allowed: tensor"):
        h.check(torch.ones(1), "one")


def test_a_failure_in_torchs_graph_code_is_placed_there():
    names = {"capture_end": "capture", "replay": "replay"}
    code = "".join(f"def {name}():\n    raise RuntimeError\n" for name in names)
    inside: dict = {}
    exec(compile(code, "site-packages/torch/cuda/graphs.py", "exec"), inside)
    for name, stage in names.items():
        with pytest.raises(RuntimeError) as raised:
            inside[name]()
        assert place(raised.value) == stage
    with pytest.raises(SubjectError) as own:
        handle().replay()
    assert place(own.value) is None
