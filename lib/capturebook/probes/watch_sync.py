"""Witness of synchronisation that no Python function stands for: `.item()`, nonzero, copies of pageable memory.

Wrapping a tensor's methods would change what Dynamo traces. torch's own debug mode sits below all that: it warns, from
C++, of each such call, and the warning is given on the stack of the call. Not seen, for torch does not warn of it: what
a library or an extension waits for by itself, torch.distributed and torch.sparse.
"""

import os
import threading
import warnings

from .witnesses import Witnesses

_SAYS = "called a synchronizing CUDA operation"
_WHAT = "a call that waits for the device, or a copy of pageable memory"
_STREAMS = os.path.join("torch", "cuda", "streams.py")
"""Stream.synchronize has a witness of its own."""


def implicit_syncs(w: Witnesses, stack) -> None:
    """Switch the debug mode on, and take its warnings out of those that are shown, until the stack closes."""
    import torch

    stack.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("always", message=_SAYS)
    taken, before = taker(w), warnings.showwarning
    w.takes_warning = taken

    def show(message, category, filename, lineno, file=None, line=None):
        if not taken(message, filename):
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    if hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        was = torch._C._cuda_get_sync_debug_mode()
        _set_mode(1)
        stack.callback(_set_mode, was)


def _set_mode(mode: int) -> None:
    """torch.cuda.set_sync_debug_mode without its initialising CUDA, and without its word that this is a prototype."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._C._cuda_set_sync_debug_mode(mode)


def taker(w: Witnesses):
    """A function of a warning and the file it is given in: whether it was the debug mode's, and is noted now.

    CUDA is not asked anything here: the call may have failed, and its error be on the way. Outside a capture each line
    of the subject's is noted once: the same line inside a capture is then known to synchronise, whatever its error.
    """
    lines = set()

    def taken(message, filename: str) -> bool:
        if not str(message).startswith(_SAYS):
            return False
        thread = threading.current_thread()
        if filename.endswith(_STREAMS) or thread.name.startswith("capturebook-verify"):
            return True
        if w.capturing_thread == thread.ident:
            w.note("sync", _WHAT, frame=True, capturing=True)
        elif w.capturing_thread is not None:
            w.note("thread_call", _WHAT, frame=True, capturing=True, thread=thread.name)
        else:
            where = w.subject_frame()
            if where and where.tag == "subject" and (where.file, where.line) not in lines:
                lines.add((where.file, where.line))
                w.note("sync", _WHAT, frame=where, capturing=False)
        return True

    return taken
