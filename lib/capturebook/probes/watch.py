"""Install the witnesses and take all of them off again.

Each is a wrapper around one Python entry point of torch or triton. Dynamo handles streams and events by type and
Autotuner objects by their configs, so none of these wrappers is ever traced (tested: graph and break counts do not
change).
"""

import contextlib
import threading

from .exceptions import text_of
from .watch_compile import dynamo, inductor_autotune, recompile, triton_autotune, triton_jit
from .watch_cuda import captures, streams, syncs
from .watch_sync import implicit_syncs
from .witnesses import Witnesses


@contextlib.contextmanager
def watch(witnesses: Witnesses):
    """Install every witness for the duration of the block."""
    compilers = (triton_jit, triton_autotune, inductor_autotune, dynamo, recompile)
    with contextlib.ExitStack() as stack:
        for install in (*compilers, _threads, streams, syncs, captures, implicit_syncs):
            install(witnesses, stack)
        yield witnesses


def _threads(w: Witnesses, stack) -> None:
    """An exception that ends a thread of the subject's would otherwise reach only stderr."""
    before = threading.excepthook

    def hook(args):
        w.note(
            "thread_error",
            f"{args.exc_type.__name__}: {text_of(args.exc_value)}"[:500],
            capturing=False,
            thread=args.thread.name if args.thread else "?",
        )
        before(args)

    threading.excepthook = hook
    stack.callback(setattr, threading, "excepthook", before)
