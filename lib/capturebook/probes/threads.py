"""Threads of the subject: Python's by name, native ones by what the kernel lists; not our own, torch's or CUDA's."""

import os
import threading
from contextlib import suppress

_OURS = ("capturebook-",)
_KNOWN_NATIVE = ("cuda", "pt_", "iou-", "nv", "UVM", "jemalloc")
"""Names that CUDA's and torch's own native threads give themselves (cuda-EvtHandlr, pt_autograd_0)."""

HOLD_SECONDS = 0.5
"""How long a capture stays open when the subject runs threads, so that theirs have the time to break it."""


class Threads:
    """What runs besides the main thread. Made before the subject is loaded; `built` is called once it is.

    Native threads count only if they appeared while the subject was loaded and built: later, pools that torch or a
    library start for themselves bear the process's own name and cannot be told from the subject's.
    """

    def __init__(self):
        _start_worker_pools()
        self._python = set(threading.enumerate())
        self._known = _tasks()
        self._native: set[int] = set()

    def built(self) -> None:
        ours = {t.native_id for t in threading.enumerate()}
        self._native = {t for t in _tasks() - self._known if t not in ours and not _name(t).startswith(_KNOWN_NATIVE)}

    def names(self) -> list[str]:
        """Names of the subject's threads that live now; a native one as "native NAME"."""
        found = [t.name for t in threading.enumerate() if t not in self._python and not _internal(t)]
        alive = self._native & _tasks()
        return found + [f"native {_name(task)}" for task in sorted(alive)]


def _start_worker_pools() -> None:
    """Intra-op workers of torch on a CPU start with the first large operation; they are nobody's threads."""
    import torch

    torch.ones(1 << 17).add_(1).sum()


def _internal(thread: threading.Thread) -> bool:
    """Whether a Python thread is this package's or torch's own (Inductor's compile pool, for one)."""
    if thread.name.startswith(_OURS) or isinstance(thread, threading._DummyThread):
        return True
    target = getattr(thread, "_target", None)
    module = getattr(target, "__module__", None) or type(thread).__module__
    return module.partition(".")[0] in ("torch", "triton", "tqdm")


def _tasks() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def _name(task: int) -> str:
    """The kernel's name of a thread; empty once it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/self/task/{task}/comm") as file:
            return file.read().strip()
    return ""
