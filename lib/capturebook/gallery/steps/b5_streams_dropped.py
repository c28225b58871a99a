"""B5: torch.compile drops the step's stream code, or its non_blocking, and the capture meets what is left."""

import ctypes

import torch

from capturebook.gallery.inputs import vector
from capturebook.subjects import Step

foreign_call = ctypes.CDLL(None).getpid
"""Stands for a JIT kernel that is not registered: it costs a graph break."""


def step(fn, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=lambda x: x.double() * 5 + 1, tolerance=1e-5, **more)


def side_by_side(overlap: bool = True, sync: str = "stream", graph_break: str = "between") -> Step:
    """The graph breaks between fork and join; the eager join waits on a stream that the compiled part never forked."""
    side = torch.cuda.Stream()

    def fn(x):
        main = torch.cuda.current_stream()
        if not overlap:
            a = x * 2 + 1
            if graph_break != "none":
                foreign_call()
            return a + x * 3
        if graph_break == "before":
            foreign_call()
        if sync == "stream":
            side.wait_stream(main)
        else:
            side.wait_event(main.record_event())
        if graph_break == "after_fork":
            foreign_call()
        with torch.cuda.stream(side):
            a = x * 2 + 1
        if graph_break == "between":
            foreign_call()
        b = x * 3
        if sync == "stream":
            main.wait_stream(side)
        else:
            main.wait_event(side.record_event())
        return a + b

    return step(fn)


def split(fork_once, compiled) -> Step:
    """Fork and side work in one function, the join in its caller; `compiled` says what torch.compile gets."""
    side = torch.cuda.Stream()

    def fork(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2 + 1

    def step_with(fork):
        def fn(x):
            a = fork(x)
            b = x * 3
            torch.cuda.current_stream().wait_stream(side)
            return a + b

        return fn

    return step(step_with(fork), compiled=lambda compile_: compiled(compile_, step_with, fork_once(fork)))


def fork_compiled_join_eager() -> Step:
    """Only the forking part is compiled; its stream code is dropped, and the eager join meets an idle side stream."""
    return split(lambda fork: fork, lambda compile_, step_with, fork: step_with(compile_(fork)))


def fork_compiled_join_eager_fixed() -> Step:
    """The fork stays out of the compiler (torch.compiler.disable), called from compiled code."""
    return split(torch.compiler.disable, lambda compile_, step_with, fork: step_with(compile_(lambda x: fork(x))))


def forking(compile_) -> Step:
    side = torch.cuda.Stream()

    @compile_
    def fork(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return x * 2 + 1

    def fn(x):
        a = fork(x)
        b = x * 3
        torch.cuda.current_stream().wait_stream(side)
        return a + b

    return step(fn)


def compiles_its_fork() -> Step:
    """The step compiles its forking part of its own accord, whatever the arm says; its streams are lost."""
    return forking(torch.compile(backend="aot_eager"))


def compiles_its_fork_fixed() -> Step:
    """The forking part stays as it is written."""
    return forking(lambda fork: fork)


def pinned(seed: int) -> tuple:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(seed))
    return (x.pin_memory(),)


def copied(copy, compiled=None) -> Step:
    return Step(
        fn=lambda x: copy(x) * 2 + 1,
        make_inputs=pinned,
        reference=lambda x: x.double().cuda() * 2 + 1,
        tolerance=1e-5,
        compiled=compiled,
    )


def upload(x):
    return torch.empty(4096, device="cuda").copy_(x, non_blocking=True)


def non_blocking_dropped() -> Step:
    """copy_(pinned, non_blocking=True) is compiled to a copy that waits, which a capture refuses."""
    return copied(upload)


def non_blocking_dropped_fixed() -> Step:
    """The copy stays eager; the arithmetic behind it is compiled."""

    def compiled(compile_):
        rest = compile_(lambda x: x * 2 + 1)
        return lambda x: rest(upload(x))

    return copied(upload, compiled)
