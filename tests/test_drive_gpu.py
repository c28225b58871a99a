"""The driver on a GPU: steps that drive themselves, the contract under capture, and readings that rules wait for."""

import os
from pathlib import Path

import pytest

from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from test_probes import Run

pytestmark = pytest.mark.gpu
STEPS = Path(__file__).parent / "planted_drive_gpu.py"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STEPS.parent), os.environ.get("PYTHONPATH", "")])
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        yield pool


def probe(name, watched=True, args=None, **factors):
    target = name if ":" in name else f"{STEPS}:{name}"
    return Probe(kind="step", subject=Subject(target=target), arm=Arm(**factors), watched=watched, args=args or {})


def outcomes(pool, names, **kw) -> dict:
    records = pool.run([probe(name, **kw) for name in names])
    return {name: (r.status, r.stage, r.root.text if r.root else r.reason) for name, r in zip(names, records)}


@pytest.mark.parametrize("watched", [True, False])
def test_right_protocols_pass(pool, watched):
    names = ("right_protocol", "own_pool_and_graph", "announced_capture", "registers_its_generator")
    assert outcomes(pool, names, watched=watched) == dict.fromkeys(names, ("pass", "replay", ""))


def test_a_protocol_uses_the_compiled_function_that_it_is_given(pool):
    (record,) = pool.run([probe("right_protocol", compile="eager")])
    assert (record.status, record.effective["unique_graphs"], record.effective["phases"]) == ("pass", 1, ["warmup"])
    assert [c.call for c in record.checks] == ["warm-up 1", "replay 1", "replay 2"]


def test_faults_of_a_protocol_are_wrong_on_replay(pool):
    names = ("rebinds_its_input", "frees_its_input", "reads_before_it_replays")
    records = pool.run([probe(name) for name in names])
    assert [(r.status, r.checks[-1].call) for r in records] == [
        ("wrong", "replay 1"), ("wrong", "replay 1"), ("wrong", "replay 0")
    ]  # fmt: skip
    assert [r.graph["missing"] for r in records] == [[], [], []]


def test_failures_of_a_protocol_are_placed_where_they_happened(pool):
    names = ("fails_in_its_capture", "fails_in_a_capture_of_its_own", "fails_in_its_warmup")
    inside, own, warmup = pool.run([probe(name) for name in names])
    assert (inside.stage, own.stage, warmup.stage) == ("capture", "capture", "warmup")
    assert (inside.root.code, own.root.code, warmup.root.type) == (900, 900, "ValueError")
    assert inside.chain[0].code == 901
    assert all(r.root.frames[-1].tag == "subject" for r in (inside, own, warmup))


def test_without_a_capture_the_default_calls_are_made(pool):
    (record,) = pool.run([probe("fails_in_its_capture", capture="none")])
    assert record.status == "pass"
    assert record.checks[-1].call == "call 3"


def test_right_steps_survive_the_capture(pool):
    names = ("reads_pinned_memory", "returns_a_row_of_a_table", "module_with_a_cache", "random_numbers")
    assert outcomes(pool, names) == dict.fromkeys(names, ("pass", "replay", ""))


@pytest.mark.parametrize("name", ["drops_its_pinned_source", "grows_its_cache", "random_number_of_the_host"])
def test_silent_faults_are_wrong_on_replay_only(pool, name):
    (record,) = pool.run([probe(name)])
    assert (record.status, record.stage) == ("wrong", "replay")
    assert all(check.ok for check in record.checks if not check.call.startswith("replay"))


def test_a_state_that_grows_is_named(pool):
    (record,) = pool.run([probe("grows_its_cache")])
    before, after = record.effective["state_reshaped"]["cache"]
    assert after[0] == before[0] + 1


def test_what_a_graph_costs_is_read(pool):
    (record,) = pool.run([probe("right_protocol")])
    memory = record.effective["memory"]
    assert memory["graphs"] == 1
    assert memory["reserved"] >= memory["allocated"] > 0
    assert "driver_used" in memory


def test_a_sound_step_has_no_threads(pool):
    plain, compiled = pool.run([probe("right_protocol"), probe("random_numbers", compile="default")])
    assert plain.effective["threads"] == compiled.effective["threads"] == []
    assert compiled.status == "pass"


def test_an_empty_graph_is_a_caveat(pool):
    (record,) = pool.run([probe("nothing_to_capture")])
    assert record.counts["warning@capture"] >= 1
    assert any("empty" in caveat for caveat in record.caveats)


def test_what_a_step_may_not_do_in_a_capture_has_its_witness(pool):
    own, sync, moved = pool.run(
        [probe(name) for name in ("captures_itself", "synchronises", "leaves_the_capture_by_set_stream")]
    )
    assert {(r.status, r.root.code) for r in (own, sync, moved)} == {("fail", 900)}
    assert own.counts["capture_begin@capture"] >= 1
    assert sync.counts["sync@capture"] == 1
    assert "capture_begin@capture" not in sync.counts
    assert moved.counts["launch@capture"] >= 1


def test_a_thread_breaks_the_capture_also_of_a_trivial_step(pool):
    records = pool.run(
        [
            probe("beside_a_busy_thread"),
            probe("beside_a_busy_thread", args={"trivial": True}),
            probe("beside_a_busy_thread", capture="thread_local"),
        ]
    )
    assert [r.effective["threads"] for r in records] == [["subject-poller"]] * 3
    assert [r.status for r in records] == ["fail", "fail", "pass"]
    assert {link.code for r in records for link in r.chain} == {901}
    assert records[1].payload == {"trivial": True}
    calls = [e for r in records for e in r.events if e.kind == "thread_call"]
    assert {(e.data["thread"], e.frame.function) for e in calls} == {("subject-poller", "work")}
    assert {e.what for e in calls} == {"Event.query", "torch.cuda.empty_cache"}


def test_a_librarys_first_use_is_gone_once_the_captured_call_ran(pool):
    cold, frozen = pool.run([probe("library_from_the_third_call_on", args=a) for a in ({}, {"frozen_advance": True})])
    assert (cold.status, cold.stage, cold.root.code) == ("fail", "capture", None)
    assert "CUBLAS" in cold.root.text
    assert cold.payload == {"frozen_advance_passes": True}
    assert (frozen.status, frozen.payload) == ("pass", {"frozen_advance_passes": True})


def test_the_guard_of_a_compile_in_the_capture_is_named(pool):
    (record,) = pool.run([probe("compiled_anew_each_time", compile="eager")])
    (event,) = [e for e in record.events if e.kind == "recompile" and e.capturing]
    assert "word" in event.what
    assert record.counts["dynamo@capture"] >= 1
