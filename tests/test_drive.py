"""The default driver on a CPU: what a correct step survives, what a faulty one does not, and the contract's errors."""

import signal
from pathlib import Path

import pytest
import torch

from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from test_probes import Run

STEPS = Path(__file__).parent / "planted_steps.py"


@pytest.fixture(scope="module")
def pool(tmp_path_factory, probe_server):
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        yield pool


def ask(pool, name, fixed=None, watched=True, **factors):
    return ask_of(pool, f"{STEPS}:{name}", fixed, watched, **factors)


def ask_of(pool, target, fixed=None, watched=True, **factors):
    subject = Subject(target=target, options=fixed or {})
    arm = Arm(**{"capture": "none", **factors})
    probe = Probe(kind="step", subject=subject, arm=arm, args={"device": "cpu"}, watched=watched)
    (record,) = pool.run([probe])
    return record


@pytest.mark.parametrize("name", ["right", "counts_in_state", "plain_callable", "untraceable"])
def test_correct_steps_pass(pool, name):
    record = ask(pool, name)
    assert (record.status, record.reason) == ("pass", "")
    assert len(record.checks) >= 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("off_by_a_percent", "out is off by 0.01"),
        ("nan_once", "out is not finite where it should be"),
        ("hidden_state", "warm-up 2: out"),
        ("changes_its_input", "input0 changed, undeclared"),
        ("cheats_by_shape", "or has another shape"),
        ("own_check", "the step's own check says no"),
    ],
)
def test_faulty_steps_are_wrong(pool, name, says):
    record = ask(pool, name)
    assert record.status == "wrong"
    assert says in record.reason
    assert not record.samples


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shape_varies", "make_inputs: shape of input 0 is torch.Size([5]) for seed 1; before: torch.Size([4])"),
        ("python_value_varies", "make_inputs: input 1 is 1 for seed 1; it must not vary: 0"),
        ("inputs_are_a_list", "make_inputs: returned list; allowed: a tuple"),
        ("not_a_step", "build returned int; allowed: a Step, or (callable, inputs)"),
        ("no_such_function", "has no callable 'no_such_function'"),
    ],
)
def test_a_broken_contract_is_one_clear_line(pool, name, says):
    record = ask(pool, name)
    assert (record.status, record.root.type) == ("fail", "SubjectError")
    assert says in record.root.text
    assert "\n" not in record.root.text


def test_options_reach_build_and_unknown_ones_are_refused(pool):
    assert ask(pool, "takes_options", {"width": 8}, batch=3).status == "pass"
    record = ask(pool, "takes_options", {"witdh": 8})
    assert record.root.text == "options: build takes no 'witdh'; allowed: batch, width"


def test_an_arms_options_reach_build_over_the_subjects(pool):
    assert ask(pool, "fails_when_fused", {"fused": True}, options={"fused": False}).status == "pass"
    record = ask(pool, "fails_when_fused", **{"option.fused": True})
    assert (record.root.text, record.subject.options) == ("the fused path does not work", {})
    assert record.arm.label() == "capture=none option.fused=true"
    record = ask(pool, "takes_options", **{"option.witdh": 8})
    assert record.root.text == "options: build takes no 'witdh'; allowed: batch, width"


def test_a_factor_that_build_does_not_take_is_skipped(pool):
    record = ask(pool, "right", overlap=True)
    assert (record.status, record.reason) == ("skipped", "the subject has no factor 'overlap'")


def test_capture_without_a_gpu_is_skipped_with_its_reason(tmp_path):
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        if pool.gpu:
            pytest.skip("this machine has a GPU")
        probe = Probe(kind="step", subject=Subject(target=f"{STEPS}:right"), arm=Arm())
        (record,) = pool.run([probe])
    assert (record.status, record.reason) == ("skipped", "needs a CUDA GPU, and this machine has none")


def test_graph_breaks_are_counted_and_fullgraph_refuses_them(pool):
    broken = ask(pool, "untraceable", compile="eager")
    assert (broken.status, broken.effective["graph_breaks"], broken.effective["unique_graphs"]) == ("pass", 1, 2)
    refused = ask(pool, "untraceable", compile="eager", fullgraph=True)
    assert (refused.status, refused.stage) == ("fail", "compile")
    assert refused.root.module.startswith("torch._dynamo")


def test_witnesses_are_invisible_to_dynamo_and_see_its_compiles(pool):
    """Graph and break counts are the same with witnesses off; only then are there no readings."""
    seen = {watched: ask(pool, "untraceable", compile="eager", watched=watched) for watched in (True, False)}
    for what in ("graph_breaks", "unique_graphs"):
        assert seen[True].effective[what] == seen[False].effective[what]
    assert seen[True].counts["dynamo"] >= 2
    assert not seen[False].counts


def test_a_wrong_result_is_diagnosed(pool):
    """The readings that attribution asks of a wrong result: is it the same twice, and do its operators hold?"""
    fixed = ask(pool, "off_by_a_percent", compile="eager")
    assert fixed.effective["deterministic"] is True
    assert fixed.effective["opcheck"] == {}
    assert ask(pool, "random_each_call").effective["deterministic"] is False
    undeclared = ask(pool, "hides_a_mutation", compile="aot_eager")
    assert undeclared.status == "wrong"
    assert "ok" not in undeclared.effective["opcheck"].values()


def test_operators_are_checked_where_the_compiled_step_fails(pool):
    assert ask(pool, "promises_another_size").status == "pass"
    failed = ask(pool, "promises_another_size", compile="aot_eager")
    assert failed.status == "fail" and failed.root.code is None
    (said,) = failed.effective["opcheck"].values()
    assert said.startswith("test_faketensor")


def test_a_fake_with_other_strides_is_seen():
    """torch 2.11's own check of fakes lets them pass, and Inductor's assertion names no operator as its cause."""
    import capturebook.gallery.steps.k4_not_compilable  # noqa: F401  registers the operators
    from capturebook.probes import diagnose

    x = torch.randn(4096)
    said = diagnose._other_strides(torch.ops.gallery.transposed_unsaid.default, (x,), {})
    assert "(64, 1)" in said and "(1, 64)" in said
    assert diagnose._other_strides(torch.ops.gallery.transposed_said.default, (x,), {}) == ""


def test_a_fake_with_another_dtype_is_named_where_the_compiled_step_is_wrong(pool):
    wrong = ask_of(pool, "capturebook.gallery.steps.k4_not_compilable:wrong_dtype", compile="default")
    assert wrong.status == "wrong"
    (said,) = wrong.effective["opcheck"].values()
    assert "float32" in said and "bfloat16" in said


def test_a_gradient_that_is_kept_is_no_chance(pool):
    """It is put back before the second call, as all state is that a step keeps and does not declare."""
    record = ask_of(pool, "capturebook.gallery.steps.k5_wrong_before:gradient_kept")
    assert [check.ok for check in record.checks[:2]] == [True, False]
    assert record.effective["deterministic"] is True


def test_an_output_that_no_reference_gives_is_said(pool):
    record = ask(pool, "one_output_unjudged")
    assert record.status == "pass"
    assert any("not compared" in caveat and "out1" in caveat for caveat in record.caveats)


def test_a_chain_of_exceptions_that_is_a_cycle_is_walked_once():
    """Each of these looks through a step's exception; `raise first` with such a chain is what a retry loop can make."""
    from capturebook.probes import drive, exceptions, handle, trace

    first, second = ValueError("first"), ValueError("Found no NVIDIA driver")
    first.__cause__, second.__context__ = second, first

    def too_long(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(5)
    try:
        assert drive._asks_for_cuda(first) is False and handle.place(first) is None
        assert trace._needs_cuda(first) == "ValueError: Found no NVIDIA driver"
        second.args = ("second",)
        assert trace._needs_cuda(first) == ""
        assert [link.text for link in exceptions.chain_of(first, None, ())] == ["first", "second"]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
