"""Witnesses on a GPU: host synchronisation of every kind, calls to the allocator, memory that runs out, by the line."""

import os
from pathlib import Path

import pytest

from capturebook.attribution import symptoms
from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from test_probes import Run

pytestmark = pytest.mark.gpu
STEPS = Path(__file__).parent / "planted_steps_gpu.py"
GALLERY = "lib/capturebook/gallery/steps"
IN_THE_CAPTURE = ("item", "nonzero", "mask", "stream_synchronize", "device_synchronize")
BEFORE = ("tolist", "list_to_tensor", "pageable_copy")
"""torch refuses these in a capture, in words of its own, before it waits: their lines were seen to wait in warm-up."""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """{(build, watched): record}, all at once: each in a process of its own."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STEPS.parent), os.environ.get("PYTHONPATH", "")])
    targets = {name: f"{GALLERY}/k2_host_sync.py:{name}" for name in (*IN_THE_CAPTURE, *BEFORE, "item_fixed")}
    targets |= {name: f"{STEPS}:{name}" for name in ("fills_the_device", "empties_the_cache", "stays_on_the_host")}
    targets["allocator"] = f"{GALLERY}/b6_b7_environment.py:allocator"
    arms = {name: Arm(capture="thread_local" if name == "allocator" else "global") for name in targets}
    asked = {
        (name, watched): Probe(kind="step", subject=Subject(target=target), arm=arms[name], watched=watched)
        for name, target in targets.items()
        for watched in (True, False)
    }
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        return dict(zip(asked, pool.run(list(asked.values()))))


def at_the_root(record, *kinds):
    """Events of these kinds at the subject's line that the root came from."""
    mine = [frame for frame in record.root.frames if frame.tag == "subject"][-1]
    found = [e for e in record.events if e.kind in kinds and e.frame]
    return [e for e in found if (e.frame.file, e.frame.line) == (mine.file, mine.line)]


@pytest.mark.parametrize("name", IN_THE_CAPTURE)
def test_a_call_that_waits_in_the_capture_is_seen_there(records, name):
    record = records[name, True]
    assert (record.status, record.root.code) == ("fail", 900)
    assert any(e.capturing for e in at_the_root(record, "sync")), record.events


@pytest.mark.parametrize("name", BEFORE)
def test_a_copy_that_torch_refuses_is_known_by_its_line_without_a_word_of_text(records, name):
    record = records[name, True]
    assert (record.status, record.stage, record.root.code) == ("fail", "capture", None)
    assert at_the_root(record, "sync"), record.events
    blank = record.model_copy(update={"chain": [k.model_copy(update={"text": ""}) for k in record.chain]})
    assert symptoms.refused(blank) and symptoms.subjects_frame(blank)


def test_witnesses_change_no_outcome_and_their_warnings_are_no_caveats(records):
    for name in (*IN_THE_CAPTURE, *BEFORE, "item_fixed", "fills_the_device", "empties_the_cache", "stays_on_the_host"):
        on, off = records[name, True], records[name, False]
        assert (on.status, on.root and (on.root.code, on.root.type)) == (
            off.status, off.root and (off.root.code, off.root.type)
        ), name  # fmt: skip
        assert off.events == []
        assert not [c for c in on.caveats if "synchronizing" in c], name


def test_a_step_that_waits_for_nothing_is_not_said_to(records):
    record = records["item_fixed", True]
    assert record.status == "pass"
    assert not [e for e in record.events if e.kind in ("sync", "allocator", "oom")], record.events


def test_memory_that_runs_out_in_the_capture_is_an_event(records):
    record = records["fills_the_device", True]
    assert (record.status, record.stage, record.root.type) == ("fail", "capture", "OutOfMemoryError")
    assert record.counts["oom@capture"] >= 1
    assert symptoms.out_of_memory(record) and not symptoms.python_error(record)


def test_a_call_to_the_allocator_is_seen(records):
    record = records["empties_the_cache", True]
    assert record.counts["allocator@capture"] == 1, (record.status, record.root, record.counts)


def test_the_thread_that_calls_the_allocator_is_named(records):
    record = records["allocator", True]
    calls = [e for e in record.events if e.kind == "thread_call" and e.what == "torch.cuda.empty_cache"]
    assert calls and {e.data["thread"] for e in calls} == {"second-model"}


def test_a_step_that_never_touches_the_gpu_breaks_the_contract(records):
    record = records["stays_on_the_host", True]
    assert (record.status, record.root.type) == ("fail", "SubjectError")
    assert "nothing of it is on the GPU" in record.root.text
