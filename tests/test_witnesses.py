"""Witnesses are taken off again, and off they are the originals."""

import os
import threading
import warnings

import pytest
import torch
import torch._dynamo.trace_rules as trace_rules
import torch._inductor.runtime.triton_heuristics as heuristics
from torch._dynamo import convert_frame
from torch._dynamo.utils import counters
from triton import knobs
from triton.runtime.autotuner import Autotuner

from capturebook.probes import graph
from capturebook.probes.capture import Captures
from capturebook.probes.graph import is_chain
from capturebook.probes.watch import watch
from capturebook.probes.witnesses import Witnesses


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
        "showwarning": warnings.showwarning,
        "warning filters": list(warnings.filters),
        **{name: getattr(torch._C, name) for name in BUILT_WITH_CUDA if hasattr(torch._C, name)},
        **({"sync mode": torch._C._cuda_get_sync_debug_mode()} if hasattr(torch._C, BUILT_WITH_CUDA[0]) else {}),
    }


BUILT_WITH_CUDA = ("_cuda_emptyCache", "_cuda_cudaCachingAllocator_raw_alloc", "_cuda_synchronize")


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


SYNCHRONISES = "called a synchronizing CUDA operation (function warn_or_error_on_sync)"
"""What torch's debug mode says of `.item()` and the like; here it is said in its place."""


def reads_a_value():
    warnings.warn(SYNCHRONISES, UserWarning, stacklevel=1)


def copies():
    warnings.warn(SYNCHRONISES, UserWarning, stacklevel=1)


def test_what_waits_without_a_function_of_its_own_is_noted_by_line_and_not_shown():
    witnesses = Witnesses(None, (__file__,))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("error")
        with watch(witnesses):
            for call in (reads_a_value, copies, reads_a_value):
                call()
            witnesses.capturing_thread = threading.get_ident()
            reads_a_value()
            reads_a_value()
            other = threading.Thread(target=copies, name="loader")
            other.start()
            other.join()
            witnesses.capturing_thread = None
            verifier = threading.Thread(target=copies, name="capturebook-verify_0")
            verifier.start()
            verifier.join()
    seen = [(e.kind, e.capturing, e.frame.function) for e in witnesses.events]
    outside = [("sync", False, "reads_a_value"), ("sync", False, "copies")]
    assert seen == [*outside, *[("sync", True, "reads_a_value")] * 2, ("thread_call", True, "copies")]
    assert witnesses.events[-1].data["thread"] == "loader"
    assert shown == []


def test_warnings_of_others_are_shown_as_before_and_in_a_capture_they_are_caveats():
    witnesses, caveats = Witnesses(None, (__file__,)), []
    captures = Captures(None, caveats, witnesses, None)
    with pytest.warns(UserWarning, match="of the subject") as shown, watch(witnesses):
        witnesses.capturing_thread = threading.get_ident()
        with captures._warnings():
            copies()
            warnings.warn("one of the subject's own", UserWarning, stacklevel=1)
        witnesses.capturing_thread = None
    assert len(shown) == 1
    assert [(e.kind, e.what) for e in witnesses.events][1:] == [("warning", "one of the subject's own")]
    assert witnesses.events[0].kind == "sync"
    assert caveats == ["warned while capturing: one of the subject's own"]


def waits_in_several_ways(x):
    y = x * 2
    if x.sum().item() > 0:
        torch.cuda.empty_cache()
    warnings.warn("for once", UserWarning, stacklevel=1)
    return y + torch.tensor(x.tolist()).sum()


def test_dynamo_sees_nothing_of_the_witnesses():
    """Same graphs, same breaks, with and without them, of a step that reads values, copies and calls the allocator."""

    def traced():
        torch._dynamo.reset()
        counters.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compile(waits_in_several_ways, backend="eager")(torch.ones(3))
        return dict(counters["graph_break"]), dict(counters["stats"])

    before, witnesses = traced(), Witnesses(None, (__file__,))
    with watch(witnesses):
        assert traced() == before
    assert before[1]["unique_graphs"] >= 2
    assert witnesses.counts["dynamo"] >= 2, "torch._dynamo.reset() takes callbacks away: this one comes back"


def test_memory_that_runs_out_in_a_capture_is_counted(monkeypatch):
    counts = iter(({"allocations failed": 1, "allocations tried again": 4}, {"allocations failed": 2}))
    monkeypatch.setattr("capturebook.probes.memory.shortages", lambda: next(counts))
    witnesses = Witnesses(None, ())
    with pytest.raises(ValueError, match="planted"), Captures(None, [], witnesses, None)._watched():
        raise ValueError("planted")
    assert [(e.kind, e.capturing, e.what) for e in witnesses.events] == [("oom", True, "1 allocations failed")]


def test_events_are_bounded_by_kind_and_counts_are_not():
    witnesses = Witnesses(None, ())
    for number in range(1000):
        witnesses.note("thread_call", f"planted {number}", capturing=True)
    witnesses.note("sync", "planted", capturing=True)
    assert [e.kind for e in witnesses.events] == ["thread_call"] * 32 + ["sync"]
    assert witnesses.counts == {"thread_call@capture": 1000, "sync@capture": 1}


def test_a_thread_that_polls_is_one_event():
    witnesses = Witnesses(None, ())
    for thread in ("poller", "poller", "second", "poller"):
        witnesses.note("thread_call", "Event.query", capturing=True, thread=thread)
    assert [e.data["thread"] for e in witnesses.events] == ["poller", "second"]
    assert witnesses.counts == {"thread_call@capture": 4}


def test_the_guard_of_a_recompile_comes_without_the_path_it_was_made_at(monkeypatch):
    said = f"0/0: scale == 2.0    # return x * scale  # {os.path.realpath(__file__)}:31 in fn\nUser stack trace:\n ..."
    monkeypatch.setattr(convert_frame, "get_and_maybe_log_recompilation_reasons", lambda *a: [said])
    witnesses = Witnesses(None, ())
    with watch(witnesses):
        assert convert_frame.get_and_maybe_log_recompilation_reasons(None) == [said]
    assert [e.what for e in witnesses.events] == ["0/0: scale == 2.0"]


def test_a_graph_without_nodes_is_described_without_asking_for_them(monkeypatch):
    """As the driver does: an empty graph's count is 0, and an array for 0 nodes is an invalid value."""
    asked = []

    def call(name, handle, nodes, count):
        assert (name, nodes) == ("cuGraphGetNodes", None)
        asked.append(name)

    monkeypatch.setattr(graph, "_call", call)
    assert graph.describe(1) == {"kernels": {}, "nodes": {}, "parallel": False}
    assert asked == ["cuGraphGetNodes"]


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
