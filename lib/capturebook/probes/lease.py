"""One lock for each GPU: correctness probes share it, timings hold it alone, across all runs on the machine."""

import contextlib
import fcntl
import os
import tempfile


def gpu_uuid(index: int = 0) -> str | None:
    """The UUID of the GPU that CUDA will call device 0 (CUDA_VISIBLE_DEVICES respected), or None without a GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    except pynvml.NVMLError_DriverNotLoaded:
        return None
    try:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            names = [v.strip() for v in visible.split(",") if v.strip()]
            if index >= len(names) or names[index] == "-1":
                return None
            if not names[index].isdecimal():
                return names[index]
            index = int(names[index])
        if index >= pynvml.nvmlDeviceGetCount():
            return None
        return pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
    finally:
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def hold(uuid: str | None, exclusive: bool, say):
    """Hold a GPU's lock, shared or alone; `say(text)` is told once when somebody else's hold must be waited for."""
    if uuid is None:
        yield
        return
    path = os.path.join(tempfile.gettempdir(), f"capturebook-{uuid}.lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for GPU {uuid[:12]}: another run holds it")
            fcntl.flock(handle, mode)
        yield
    finally:
        os.close(handle)
