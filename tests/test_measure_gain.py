"""Two arms timed in turns in one process: on a CPU uncaptured, on a GPU captured."""

from pathlib import Path

import pytest

from capturebook.measure.timing import interleave
from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from test_probes import Run

STEPS = Path(__file__).parent / "planted_steps.py"
PLAIN = Arm(capture="none", warmup="warm1")


@pytest.fixture(scope="module")
def pool(tmp_path_factory, probe_server):
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        yield pool


def pair(target: str, fixed: Arm, other: Arm, **args) -> Probe:
    return Probe(
        kind="gain",
        job="capturebook.measure.gain:run",
        role="repeat",
        subject=Subject(target=target if ":" in target else f"{STEPS}:{target}"),
        arm=fixed,
        args={"samples": 7, "beside": other.model_dump(), **args},
        exclusive=True,
    )


def test_each_has_its_turn_and_the_first_of_a_round_changes():
    order = []
    samples = interleave({"a": "A", "b": "B"}, 3, lambda thing: order.append(thing) or float(len(order)))
    assert order == ["A", "B", "B", "A", "A", "B"]
    assert samples == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_both_arms_are_compared_and_then_timed(pool):
    (record,) = pool.run([pair("counts_in_state", PLAIN, PLAIN.changed(compile="eager"), device="cpu")])
    assert (record.status, record.kind, record.stage) == ("pass", "gain", "time"), record.reason
    assert {name: len(times) for name, times in record.samples.items()} == {"fixed": 7, "baseline": 7}
    assert record.payload["baseline"]["compile"] == "eager"
    assert len({check.call for check in record.checks}) == 2 and len(record.checks) >= 4


def test_no_time_of_a_step_that_is_wrong(pool):
    (record,) = pool.run([pair("off_by_a_percent", PLAIN, PLAIN.changed(compile="eager"), device="cpu")])
    assert record.status == "wrong" and not record.samples
    assert record.reason.startswith("fixed, ")
    (record,) = pool.run([pair("fails_when_fused", PLAIN, PLAIN.changed(**{"option.fused": True}), device="cpu")])
    assert (record.status, record.root.text) == ("fail", "the fused path does not work"), "the other arm's option"


@pytest.mark.gpu
@pytest.mark.alone
def test_the_storys_fix_beside_the_uncompiled_step(pool):
    story = Arm(kernel="mma", compile="default", overlap=True, sync="event", graph_break="between")
    built_in = "capturebook.subjects.sparse_mla:build"
    (record,) = pool.run([pair(built_in, story, story.changed(compile="none", sync="stream"))])
    assert record.status == "pass", record.reason or record.chain
    fixed, baseline = record.samples["fixed"], record.samples["baseline"]
    assert len(fixed) == len(baseline) == 7 and min(fixed + baseline) > 1.0


@pytest.mark.gpu
@pytest.mark.alone
def test_a_pinned_arm_beside_a_live_one(pool):
    live = Arm(kernel="mma", overlap=False, graph_break="none")
    (record,) = pool.run([pair("capturebook.subjects.sparse_mla:build", live.changed(tuning="pinned"), live)])
    assert record.status == "pass", record.reason or record.chain
