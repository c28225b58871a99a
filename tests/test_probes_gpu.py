"""Probes on a GPU: controls, the chain of a failed capture, witnesses, graphs, and what silent faults come out as."""

import os
from pathlib import Path

import pytest

from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from test_probes import Run

pytestmark = pytest.mark.gpu
STEPS = Path(__file__).parent / "planted_steps_gpu.py"
STORY = {"overlap": True, "sync": "stream", "graph_break": "between", "kernel": "mma", "tuning": "pinned"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STEPS.parent), os.environ.get("PYTHONPATH", "")])
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        yield pool


def probe(target, watched=True, args=None, seed=0, **factors):
    target = target if ":" in target else f"{STEPS}:{target}"
    return Probe(
        kind="step", subject=Subject(target=target), arm=Arm(**factors), seed=seed, watched=watched, args=args or {}
    )


def control(name, **factors):
    return probe(f"capturebook.subjects.controls:{name}", **factors)


def decode(watched=True, **factors):
    return probe("capturebook.subjects.sparse_mla:build", watched, **{**STORY, **factors})


def test_the_three_controls(pool):
    trivial, item, baked = pool.run([control("trivial"), control("planted_item"), control("baked_scalar")])
    assert trivial.status == "pass"
    assert (item.status, item.stage, item.root.code) == ("fail", "capture", 900)
    assert item.chain[0].code == 901, "the error that surfaces is not the one that happened"
    assert any(frame.tag == "subject" for frame in item.root.frames)
    assert (baked.status, baked.stage) == ("wrong", "replay")


def test_cold_live_autotune_is_900_and_seen_by_its_witness(pool):
    live, pinned = pool.run(
        [decode(tuning=t, warmup="kernel_cold", overlap=False, graph_break="none") for t in ("live", "pinned")]
    )
    assert (live.status, live.root.code) == ("fail", 900)
    assert live.counts["autotune@capture"] >= 1
    assert pinned.status == "pass"
    assert pinned.counts["jit@capture"] >= 1
    assert "autotune@capture" not in pinned.counts


def test_witnesses_change_neither_graphs_nor_breaks_nor_outcome(pool):
    arms = [{"compile": "default"}, {"compile": "default", "sync": "event"}]
    records = pool.run([decode(watched, **arm) for arm in arms for watched in (True, False)])
    for on, off in (records[:2], records[2:]):
        assert (on.status, on.root and on.root.code) == (off.status, off.root and off.root.code)
        assert on.effective["unique_graphs"] == off.effective["unique_graphs"]
        assert on.effective["graph_breaks"] == off.effective["graph_breaks"] >= 1


def test_a_wait_on_uncaptured_work_is_905_and_named(pool):
    (record,) = pool.run([probe("joins_what_it_never_forked")])
    assert (record.status, record.root.code) == ("fail", 905)
    (wait,) = [event for event in record.events if event.kind == "wait"]
    assert wait.capturing and wait.frame.function == "fn"


def test_parallel_branches_are_seen_in_the_graph(pool):
    forked, chain = pool.run([probe("forks_and_joins"), control("trivial")])
    assert forked.status == chain.status == "pass"
    assert forked.graph["parallel"] is True
    assert chain.graph["parallel"] is False
    assert sum(forked.graph["kernels"].values()) == 3


def test_trees_are_read_back_not_assumed(pool):
    twin = "capturebook.subjects.sparse_mla:build"
    plain, trees, variable = pool.run(
        [
            probe(twin, compile="default", capture="none", variant="twin"),
            probe(twin, compile="reduce-overhead", capture="none", variant="twin"),
            probe(twin, compile="default", capture="none", variant="twin", env={"TORCHINDUCTOR_CUDAGRAPHS": "1"}),
        ]
    )
    assert [r.effective["trees_manager"] for r in (plain, trees, variable)] == [False, True, True]


@pytest.mark.parametrize("name", ["reads_freed_memory", "rebinds_its_weight"])
def test_silent_faults_are_wrong(pool, name):
    (record,) = pool.run([probe(name)])
    assert (record.status, record.stage) == ("wrong", "replay")


def test_samples_only_of_a_step_that_passed(pool):
    good, bad = pool.run([control("trivial"), control("baked_scalar")])
    timed = [Probe(kind="step", subject=r.subject, arm=r.arm, args={"samples": 5}, exclusive=True) for r in (good, bad)]
    passed, wrong = pool.run(timed)
    assert len(passed.samples["replay"]) == 5
    assert not wrong.samples


def test_work_on_a_stream_that_never_joined_the_capture_is_named(pool):
    """The story's cousin: the graph breaks right after the fork, and the side work meets an idle stream."""
    (record,) = pool.run([decode(compile="default", graph_break="after_fork")])
    assert (record.status, record.root.code) == ("fail", 900)
    assert record.counts["launch@capture"] >= 1


def test_a_kernel_that_a_library_launched_elsewhere_is_missing_from_the_graph(pool):
    (record,) = pool.run([probe("launches_on_the_default_stream")])
    assert (record.status, record.stage) == ("wrong", "replay")
    assert len(record.graph["missing"]) == 1


def test_nothing_is_missing_where_a_value_was_baked(pool):
    (record,) = pool.run([control("baked_scalar")])
    assert record.graph["missing"] == []
    assert record.effective["deterministic"] is True


def test_correct_steps_are_never_called_wrong(pool):
    """Many seeds of steps with a side stream: the instrument itself must not race."""
    arms = [probe("forks_and_joins", seed=seed) for seed in range(6)]
    arms += [Probe(**{**vars(decode()), "arm": decode(graph_break="none").arm, "seed": seed}) for seed in range(6)]
    assert [record.status for record in pool.run(arms)] == ["pass"] * 12
