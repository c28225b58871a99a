"""Witnesses are taken off again, and off they are the originals."""

import threading

import pytest
import torch
import torch._dynamo.trace_rules as trace_rules
import torch._inductor.runtime.triton_heuristics as heuristics
from torch._dynamo import convert_frame
from triton import knobs
from triton.runtime.autotuner import Autotuner

from capturebook.probes.graph import is_chain
from capturebook.probes.witnesses import Witnesses, watch


def _watched_places():
    return {
        "Autotuner._bench": Autotuner._bench,
        "autotune_to_one_config": heuristics.CachingAutotuner.autotune_to_one_config,
        "Event.record": torch.cuda.Event.record,
        "Event.wait": torch.cuda.Event.wait,
        "Event.synchronize": torch.cuda.Event.synchronize,
        "Stream.synchronize": torch.cuda.Stream.synchronize,
        "Stream.query": torch.cuda.Stream.query,
        "Event.query": torch.cuda.Event.query,
        "StreamContext.__exit__": torch.cuda.StreamContext.__exit__,
        "CUDAGraph.capture_begin": torch.cuda.CUDAGraph.capture_begin,
        "_set_stream_by_id": torch.cuda._set_stream_by_id,
        "accelerator synchronize": torch._C._accelerator_synchronizeDevice,
        "recompilation reasons": convert_frame.get_and_maybe_log_recompilation_reasons,
        "jit": knobs.runtime.jit_post_compile_hook,
        "load": list(knobs.runtime.kernel_load_start_hook.calls),
        "excepthook": threading.excepthook,
    }


def test_everything_is_restored_also_after_an_error():
    before = _watched_places()
    try:
        with watch(Witnesses(None, ())):
            inside = _watched_places()
            raise ValueError
    except ValueError:
        assert _watched_places() == before
    assert all(inside[name] != before[name] for name in before)


def test_public_functions_stay_what_they_are_and_methods_are_treated_alike_by_dynamo():
    """Dynamo knows torch's functions by identity and others by file: a wrapper must make no difference to either."""
    public = ("synchronize", "set_stream", "stream", "current_stream", "is_current_stream_capturing", "graph")
    methods = [
        (torch.cuda.Event, "record"), (torch.cuda.Event, "wait"), (torch.cuda.Event, "synchronize"),
        (torch.cuda.Event, "query"), (torch.cuda.Stream, "query"),
        (torch.cuda.Stream, "synchronize"), (torch.cuda.StreamContext, "__exit__"),
        (torch.cuda.CUDAGraph, "capture_begin"), (Autotuner, "_bench"),
    ]  # fmt: skip

    def treatment():
        return [trace_rules.lookup(getattr(owner, name)) for owner, name in methods]

    before = [getattr(torch.cuda, name) for name in public], treatment()
    with watch(Witnesses(None, ())):
        assert ([getattr(torch.cuda, name) for name in public], treatment()) == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exception_that_ends_a_thread_is_recorded():
    witnesses = Witnesses(None, ())
    with watch(witnesses):
        thread = threading.Thread(target=lambda: 1 / 0, name="subject-loader")
        thread.start()
        thread.join()
    (event,) = witnesses.events
    assert event.kind == "thread_error"
    assert "division by zero" in event.what
    assert event.data["thread"] == "subject-loader"


def test_a_call_of_another_thread_is_named_while_a_capture_is_open():
    """The device is not touched: the accelerator's wait is replaced below the witness."""
    original, torch._C._accelerator_synchronizeDevice = torch._C._accelerator_synchronizeDevice, lambda *a: None
    try:
        witnesses = Witnesses(None, ())
        with watch(witnesses):

            def wait():
                torch._C._accelerator_synchronizeDevice(0)

            for capturing in (None, threading.get_ident(), None):
                witnesses.capturing_thread = capturing
                thread = threading.Thread(target=wait, name="metrics")
                thread.start()
                thread.join()
                wait()
    finally:
        torch._C._accelerator_synchronizeDevice = original
    (event,) = witnesses.events
    assert (event.kind, event.capturing, event.data["thread"]) == ("thread_call", True, "metrics")


def test_events_are_bounded_by_kind_and_counts_are_not():
    witnesses = Witnesses(None, ())
    for _ in range(1000):
        witnesses.note("thread_call", "planted", capturing=True)
    witnesses.note("sync", "planted", capturing=True)
    assert [e.kind for e in witnesses.events] == ["thread_call"] * 32 + ["sync"]
    assert witnesses.counts == {"thread_call@capture": 1000, "sync@capture": 1}


def test_chain_and_fork_of_a_graph():
    assert is_chain([1, 2, 3], [(1, 2), (2, 3)])
    assert is_chain([1, 2, 3], [(1, 2), (2, 3), (1, 3)])
    assert not is_chain([1, 2, 3], [(1, 2), (1, 3)])
    assert not is_chain([1, 2], [])
    assert is_chain([], [])


def test_every_free_block_is_filled_from_its_own_pool(monkeypatch):
    """A small pool's remainder of over 1 MiB, asked for whole, would be served by the large pool and stay as it is."""
    from capturebook.probes import poison

    def segment(kind, *sizes, pool=(0, 0)):
        blocks = [{"size": size, "state": "inactive"} for size in sizes] + [{"size": 512, "state": "active_allocated"}]
        return {"segment_type": kind, "segment_pool_id": pool, "blocks": blocks}

    snapshot = [
        segment("small", 512, 2097152 - 1024),
        segment("large", 20 << 20),
        segment("small", 1024, pool=(0, 7)),
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: snapshot)
    assert poison._free_blocks() == [512, 1 << 20, 1048576 - 1024, 20 << 20]
