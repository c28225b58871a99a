"""B6: other threads use CUDA while the capture is open. B7: a setting of the process forbids what a capture needs."""

import itertools
import os
import threading
import time

import torch
import triton
import triton.language as tl

from capturebook.gallery.inputs import DEVICE, vector
from capturebook.subjects import Step


def beside(work, name: str) -> Step:
    """A right step, and a thread that calls `work` every few milliseconds until the step is closed."""
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            try:
                work()
            except RuntimeError as error:
                print(f"{name}: {str(error).splitlines()[0]}")
            time.sleep(0.005)

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()

    def close():
        stop.set()
        thread.join()

    return Step(fn=lambda x: x * 2 + 1, make_inputs=vector, reference=lambda x: x.double() * 2 + 1, close=close)


def watchdog() -> Step:
    """A watchdog thread asks an event whether it is done; in global mode any thread's query breaks the capture."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    event.record(stream)

    def work():
        event.record(stream)
        event.query()

    return beside(work, "watchdog")


def data_loader() -> Step:
    """A loader thread pins host memory for the next batch: cudaHostAlloc is refused while a capture is open."""
    batches = []
    return beside(lambda: batches.append(torch.empty(1 << 14).pin_memory()), "loader")


def allocator() -> Step:
    """A second model's thread allocates: cudaMalloc and cudaFree are refused while a capture is open.

    Each time more than before: what it gave back would serve the same request again, without any cudaMalloc.
    """
    sizes = itertools.count(16)

    def work():
        held = torch.empty(next(sizes) << 21, dtype=torch.uint8, device=DEVICE)
        del held
        torch.cuda.empty_cache()

    return beside(work, "second-model")


def synchroniser() -> Step:
    """A metrics thread synchronises the whole device, which breaks a capture of any mode."""
    return beside(torch.cuda.synchronize, "metrics")


def synchroniser_fixed() -> Step:
    """Thread and capture take the same lock, so that the thread waits as long as a capture is open."""
    turn = threading.Lock()

    def wait():
        with turn:
            torch.cuda.synchronize()

    step = beside(wait, "metrics")

    def drive(h):
        (x,) = vector(0)
        step.fn(x)
        with turn, h.capture():
            out = step.fn(x)
        x.copy_(vector(1)[0])
        h.replay()
        h.check(out, x * 2 + 1)

    step.drive = drive
    return step


def host_thread() -> Step:
    """A thread that computes on the host alone does no harm."""
    data = torch.ones(4096)
    return beside(lambda: data.sum().item(), "statistics")


def projection() -> Step:
    """A sound step. Without the caching allocator every allocation is a cudaMalloc, which a capture refuses; with NaN
    asserts its compiled code reads values on the host."""
    return Step(fn=lambda x: x * 2 + 1, make_inputs=vector, reference=lambda x: x.double() * 2 + 1)


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled(x):
    out = torch.empty_like(x)
    double_kernel[(4,)](x, out, x.numel(), BLOCK=1024)
    return out


def kernel() -> Step:
    """Triton's interpreter computes on the host, with copies there and back that a capture refuses."""
    common = {"make_inputs": vector, "reference": lambda x: x.double() * 2}
    return Step(fn=doubled, twin=Step(fn=lambda x: x * 2, **common), **common)


def quiet_setting() -> Step:
    """Reads a variable of its own; nothing about it concerns a capture."""
    factor = float(os.environ.get("DECODE_SCALE", "2"))
    return Step(fn=lambda x: x * factor, make_inputs=vector, reference=lambda x: x.double() * factor)
