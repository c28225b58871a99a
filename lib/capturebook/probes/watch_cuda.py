"""Witnesses of torch's CUDA interface: waits and work outside a capture, host synchronisation, captures in captures.

What cannot be had: an allocation that CUDA refuses (900: on a stream outside the capture, or without the caching
allocator). It is raised inside the allocator before that counts or records anything, so neither its counters nor its
history hold it, and wrapping what allocates would change what Dynamo sees. The stream is seen (launch), the setting is
read back, memory that ran out is counted (capture.py).

Nor is the wait of a compiled step: arms that compile and end with 905 hold no wait in their capture, and no frame of
torch's streams.py. Inferred, not shown: it goes through torch.Stream.wait_stream, a C method of a type that cannot be
altered, past the watched Event.wait. The rule for B5 takes the error's code, not that witness.
"""

import sys
import threading

from .witnesses import Witnesses, is_capturing, replace


def streams(w: Witnesses, stack) -> None:
    """Waits, while capturing, on an event last recorded outside the capture: what CUDA answers with 905. And stream
    contexts entered from the capturing stream and left without having joined the capture: their work is outside it.

    Stream.wait_event and Stream.wait_stream both end in Event.wait, so that one is watched. An event that was
    never recorded is a no-op to CUDA, and an external one is allowed.
    """
    import torch

    def make_record(original):
        def record(self, stream=None):
            result = original(self, stream)
            self._recorded_in_capture = capturing_on(stream)
            return result

        return record

    def make_wait(original):
        def wait(self, stream=None):
            outside = getattr(self, "_recorded_in_capture", None) is False and not getattr(self, "external", False)
            if outside and capturing_on(stream):
                w.note("wait", "an event recorded outside the capture", frame=True, capturing=True, outside=True)
            return original(self, stream)

        return wait

    def make_exit(original):
        def leave(self, *error):
            came_from = getattr(self, "src_prev_stream", None)
            if came_from is not None and capturing_on(came_from) and not capturing_on(self.stream):
                w.note("launch", "a stream outside the capture was current", frame=True, capturing=True, outside=True)
            return original(self, *error)

        return leave

    leaving = torch.cuda.StreamContext.__exit__.__code__

    def make_set(original):
        def set_stream(stream_id, device_index, device_type):
            was_outside = torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()
            result = original(stream_id, device_index, device_type)
            if was_outside and is_capturing() and sys._getframe(2).f_code is not leaving:
                w.note("launch", "a stream outside the capture was current", frame=True, capturing=True, outside=True)
            return result

        return set_stream

    replace(stack, torch.cuda, "_set_stream_by_id", make_set)
    replace(stack, torch.cuda.StreamContext, "__exit__", make_exit)
    replace(stack, torch.cuda.Event, "record", make_record)
    replace(stack, torch.cuda.Event, "wait", make_wait)


def capturing_on(stream) -> bool:
    import torch

    if not torch.cuda.is_initialized():
        return False
    if stream is None:
        return torch.cuda.is_current_stream_capturing()
    before = torch.cuda.current_stream()
    _set(stream)
    try:
        return torch.cuda.is_current_stream_capturing()
    finally:
        _set(before)


def _set(stream) -> None:
    """Make a stream current past the witnesses: changing it is watched itself."""
    import torch

    torch._C._cuda_setStream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )


def syncs(w: Witnesses, stack) -> None:
    """Host synchronisation, queries and calls to the allocator while capturing, by name, of other threads too
    (thread_call). `.item()`, copies and the like are watch_sync's.

    torch.cuda.graph synchronises before it begins, so a capture inside the capture is seen here, before it can fail.
    """
    import torch

    entering = torch.cuda.graph.__enter__.__code__

    def make(what, kind="sync"):
        def outer(original):
            def synchronize(*args, **kwargs):
                if is_capturing():
                    w.note(kind, what, frame=True)
                    if _on_stack(entering):
                        w.note("capture_begin", "torch.cuda.graph inside the capture", frame=True)
                elif w.capturing_thread not in (None, threading.get_ident()):
                    name = threading.current_thread().name
                    w.note("thread_call", what, frame=True, capturing=True, thread=name)
                return original(*args, **kwargs)

            return synchronize

        return outer

    # Below torch.cuda.synchronize: that one Dynamo knows by identity, so a wrapper of it would be traced.
    for name, what, kind in (
        ("_cuda_synchronize", "torch.cuda.synchronize", "sync"),
        ("_accelerator_synchronizeDevice", "torch.accelerator.synchronize", "sync"),
        ("_cuda_emptyCache", "torch.cuda.empty_cache", "allocator"),
        ("_cuda_cudaCachingAllocator_raw_alloc", "torch.cuda.caching_allocator_alloc", "allocator"),
    ):
        if hasattr(torch._C, name):
            replace(stack, torch._C, name, make(what, kind))
    for owner in (torch.cuda.Stream, torch.cuda.Event):
        for name in ("synchronize", "query"):
            replace(stack, owner, name, make(f"{owner.__name__}.{name}"))


def _on_stack(code) -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def captures(w: Witnesses, stack) -> None:
    """A raw capture_begin while another capture is open."""
    import torch

    def make(original):
        def begin(self, *args, **kwargs):
            if is_capturing():
                w.note("capture_begin", "CUDAGraph.capture_begin inside the capture", frame=True)
            return original(self, *args, **kwargs)

        return begin

    replace(stack, torch.cuda.CUDAGraph, "capture_begin", make)
