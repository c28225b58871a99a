"""Witnesses: what compiled, tuned, loaded or waited, and whether a capture was open at that moment.

Each is a wrapper around one Python entry point of torch or triton. Dynamo handles streams and events by type and
Autotuner objects by their configs, so none of these wrappers is ever traced (tested: graph and break counts do not
change). `watch()` installs them and takes all of them off again.
"""

import contextlib
import functools
import re
import sys
import threading

from ..records import Event, Frame
from .exceptions import tag_of
from .scrub import relative

_MOST_OF_A_KIND = 32
"""Events kept of each kind, capturing and not: a thread that polls all the time must not push out the others'."""


class Witnesses:
    """Readings of one probe: events (the first 32 of each kind) and a count of every kind, "jit" or "jit@capture"."""

    def __init__(self, run: str | None, folders: tuple[str, ...]):
        self.events: list[Event] = []
        self.counts: dict[str, int] = {}
        self.capturing_thread: int | None = None
        """Identity of the thread that has a capture open, while it has one."""
        self.takes_warning = lambda message, filename: False
        """Whether a warning that was given is a witness's, and noted: watch_sync's, while it is installed."""
        self._run, self._folders = run, folders

    def note(self, kind: str, what: str, *, frame: bool | Frame = False, capturing: bool | None = None, **data) -> None:
        """Count one; `frame`: True for the subject's frame on the stack now, or a frame found before."""
        capturing = is_capturing() if capturing is None else capturing
        key = f"{kind}@capture" if capturing else kind
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] <= _MOST_OF_A_KIND:
            where = self.subject_frame() if frame is True else frame or None
            self.events.append(Event(kind=kind, capturing=capturing, what=what, frame=where, data=data))

    def subject_frame(self) -> Frame | None:
        """The innermost frame of the subject on the stack now, else the innermost outside this package."""
        frame, other = sys._getframe(2), None
        while frame is not None:
            name = frame.f_code.co_filename
            tag = tag_of(name, self._folders)
            if tag == "subject" or (other is None and tag in ("inductor", "library")):
                found = Frame(
                    file=relative(name, self._run), line=frame.f_lineno, function=frame.f_code.co_name, tag=tag
                )
                if tag == "subject":
                    return found
                other = found
            frame = frame.f_back
        return other


def is_capturing() -> bool:
    """Whether the current stream is capturing; False before CUDA is initialised, which this never does."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


@contextlib.contextmanager
def watch(witnesses: Witnesses):
    """Install every witness for the duration of the block."""
    from .watch_cuda import captures, streams, syncs
    from .watch_sync import implicit_syncs

    ours = (_triton_jit, _triton_autotune, _inductor_autotune, _dynamo, _recompile, _threads)
    with contextlib.ExitStack() as stack:
        for install in (*ours, streams, syncs, captures, implicit_syncs):
            install(witnesses, stack)
        yield witnesses


def replace(stack, owner, name: str, make):
    """owner.name becomes make(original) until the stack closes.

    Dynamo decides by a function's file whether to trace it, skip it or break the graph, so a wrapper takes the
    original's.
    """
    inherited = name not in vars(owner)
    original = getattr(owner, name)
    wrapper = functools.wraps(original)(make(original))
    if hasattr(original, "__code__"):
        wrapper.__code__ = wrapper.__code__.replace(co_filename=original.__code__.co_filename)
    setattr(owner, name, wrapper)
    stack.callback(delattr, owner, name) if inherited else stack.callback(setattr, owner, name, original)


def _triton_jit(w: Witnesses, stack) -> None:
    from triton import knobs

    def compiled(*, repr, **_):
        w.note("jit", repr.partition("[")[0], frame=True)

    def loading(module, function, name, metadata, hash):
        w.note("module_load", name)

    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = compiled
    stack.callback(setattr, knobs.runtime, "jit_post_compile_hook", before)
    knobs.runtime.kernel_load_start_hook.add(loading)
    stack.callback(knobs.runtime.kernel_load_start_hook.remove, loading)


def _triton_autotune(w: Witnesses, stack) -> None:
    from triton.runtime.autotuner import Autotuner

    def make(original):
        def bench(self, *args, config, **meta):
            w.note("autotune", self.base_fn.__name__, frame=True, config=config.all_kwargs())
            return original(self, *args, config=config, **meta)

        return bench

    replace(stack, Autotuner, "_bench", make)


def _inductor_autotune(w: Witnesses, stack) -> None:
    """Importing triton_heuristics does not touch CUDA; it is part of what any compiled arm loads anyway."""
    from torch._inductor.runtime import triton_heuristics as heuristics

    def make(original):
        def autotune(self, *args, **kwargs):
            users = self.heuristic_type is heuristics.HeuristicType.USER_AUTOTUNE
            w.note(
                "inductor_autotune", self.fn.__name__, users=users, configs=len(self.launchers or self.configs or ())
            )
            return original(self, *args, **kwargs)

        return autotune

    replace(stack, heuristics.CachingAutotuner, "autotune_to_one_config", make)


def _dynamo(w: Witnesses, stack) -> None:
    from torch._dynamo.callback import callback_handler

    def start(args):
        trigger = getattr(args.callback_trigger, "name", str(args.callback_trigger))
        w.note("dynamo" if trigger == "DYNAMO" else trigger.lower(), f"compile {args.compile_id}", frame=True)

    def make(original):
        def clear():
            original()
            callback_handler.register_start_callback(start)

        return clear

    callback_handler.register_start_callback(start)
    stack.callback(callback_handler.remove_start_callback, start)
    # A step may call torch._dynamo.reset(), which takes every callback away.
    replace(stack, callback_handler, "clear", make)


def _recompile(w: Witnesses, stack) -> None:
    """Which guard failed, when a function that was compiled before is compiled again."""
    from torch._dynamo import convert_frame

    def make(original):
        def reasons(*args, **kwargs):
            found = original(*args, **kwargs)
            # Behind the guard Dynamo quotes the line it came from, with this machine's path, cut or whole.
            guard = re.split(r"\s+# ", str(found[0]), maxsplit=1)[0][:500] if found else "no guard is named"
            w.note("recompile", guard, frame=True)
            return found

        return reasons

    replace(stack, convert_frame, "get_and_maybe_log_recompilation_reasons", make)


def _threads(w: Witnesses, stack) -> None:
    """An exception that ends a thread of the subject's would otherwise reach only stderr."""
    before = threading.excepthook

    def hook(args):
        w.note(
            "thread_error",
            f"{args.exc_type.__name__}: {args.exc_value}"[:500],
            capturing=False,
            thread=args.thread.name if args.thread else "?",
        )
        before(args)

    threading.excepthook = hook
    stack.callback(setattr, threading, "excepthook", before)
