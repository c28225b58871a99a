"""One lock for each GPU: correctness probes share it, timings hold it alone, across all runs on the machine."""

import contextlib
import fcntl
import functools
import math
import os
import tempfile
import time


def gpu_uuid() -> str | None:
    """The UUID of the GPU that CUDA will call device 0 (CUDA_VISIBLE_DEVICES respected), or None without a GPU.

    Probe servers run with CUDA_DEVICE_ORDER=PCI_BUS_ID unless it is set, so that CUDA counts as NVML does.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    except pynvml.NVMLError_DriverNotLoaded:
        return None
    try:
        count = pynvml.nvmlDeviceGetCount()
        uuids = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        return _first_visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
    finally:
        pynvml.nvmlShutdown()


def _first_visible(uuids: list[str], visible: str | None) -> str | None:
    """CUDA's rule: the list ends at its first entry that names no GPU; an entry is an index or the start of a UUID."""
    if visible is None:
        return uuids[0] if uuids else None
    first = visible.split(",")[0].strip()
    if first.isdecimal():
        return uuids[int(first)] if int(first) < len(uuids) else None
    matching = [uuid for uuid in uuids if first.startswith("GPU-") and uuid.startswith(first)]
    return matching[0] if len(matching) == 1 else None


class Busy(Exception):
    """Other runs have held the GPU for as long as a timing may wait."""


@contextlib.contextmanager
def hold(uuid: str | None, exclusive: bool, say, patience: float = math.inf):
    """Hold a GPU's lock, shared or alone; `say(text)` is told once when somebody else's hold must be waited for.

    Who wants it alone stands at a gate that every other passes first: otherwise runs that share it, one after the
    other, keep it shared for ever. Raises Busy after `patience` seconds.
    """
    if uuid is None:
        yield
        return
    until = time.monotonic() + patience
    path = os.path.join(tempfile.gettempdir(), f"capturebook-{uuid}")
    told = functools.cache(lambda: say(f"waiting for GPU {uuid[:12]}: another run holds it"))
    with contextlib.ExitStack() as stack:
        gate = stack.enter_context(_opened(f"{path}.gate"))
        _lock(gate, fcntl.LOCK_EX, told, until)
        handle = stack.enter_context(_opened(f"{path}.lock"))
        _lock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, told, until)
        if not exclusive:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@contextlib.contextmanager
def _opened(path: str):
    """A lock's file, whoever made it: another user's in /tmp opens for reading alone, and never with O_CREAT."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.fchmod(handle, 0o644)  # whatever our umask says
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, mode: int, told, until: float) -> None:
    while True:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            told()
            if time.monotonic() > until:
                raise Busy from None
            time.sleep(0.1)
