"""K6: right when called, wrong when replayed: the graph holds values, shapes and addresses of the capture."""

import random

import torch
import triton
import triton.language as tl

from capturebook.gallery.inputs import DEVICE, draw, vector
from capturebook.subjects import Step


def step(fn, reference, **more) -> Step:
    return Step(fn=fn, make_inputs=vector, reference=reference, tolerance=1e-5, **more)


def full(value: float, size: int = 4096):
    return torch.full((size,), float(value), device=DEVICE)


def scalar() -> Step:
    """A host counter enters a kernel as a Python number; the graph repeats the number of the capture."""
    now = {}
    return step(lambda x: x * now["i"], lambda x: x.double() * now["i"], advance=lambda i: now.update(i=i + 1.0))


def scalar_fixed() -> Step:
    """The number lives in a device buffer that the caller writes before each replay."""
    now = full(0, 1)
    return step(
        lambda x: x * now, lambda x: x.double() * now, state=lambda: {"now": now}, advance=lambda i: now.fill_(i + 1.0)
    )


def branch() -> Step:
    """Python picks a branch by a host flag; the graph holds only the branch that the capture took."""
    now = {}
    return step(
        lambda x: torch.sin(x) if now["even"] else torch.tanh(x),
        lambda x: torch.sin(x.double()) if now["even"] else torch.tanh(x.double()),
        advance=lambda i: now.update(even=i % 2 == 0),
    )


def branch_fixed() -> Step:
    """torch.where picks by a device flag."""
    even = torch.zeros(1, dtype=torch.bool, device=DEVICE)
    return step(
        lambda x: torch.where(even, torch.sin(x), torch.tanh(x)),
        lambda x: torch.where(even, torch.sin(x.double()), torch.tanh(x.double())),
        state=lambda: {"even": even},
        advance=lambda i: even.fill_(i % 2 == 0),
    )


def length() -> Step:
    """The context's length slices the cache on the host; the graph keeps the slice of the capture."""
    cache, now = draw(3, 4096), {}
    return step(
        lambda x: x + cache[: now["n"]].sum(),
        lambda x: x.double() + cache[: now["n"]].double().sum(),
        advance=lambda i: now.update(n=64 * (i + 1)),
    )


def length_fixed() -> Step:
    """A device length masks a cache of fixed size."""
    cache, n = draw(3, 4096), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    at = torch.arange(4096, device=DEVICE)
    return step(
        lambda x: x + torch.where(at < n, cache, 0.0).sum(),
        lambda x: x.double() + torch.where(at < n, cache, 0.0).double().sum(),
        state=lambda: {"n": n},
        advance=lambda i: n.fill_(64 * (i + 1)),
    )


def host_random() -> Step:
    """A draw of Python's random is a constant to the graph: every replay uses the same one."""
    now, source = {}, random.Random(5)
    return step(
        lambda x: x * now["keep"],
        lambda x: x.double() * now["keep"],
        advance=lambda i: now.update(keep=source.random()),
    )


def host_random_fixed() -> Step:
    """The caller writes the draw into a device buffer."""
    keep, source = full(0, 1), random.Random(5)
    return step(
        lambda x: x * keep,
        lambda x: x.double() * keep,
        state=lambda: {"keep": keep},
        advance=lambda i: keep.fill_(source.random()),
    )


@triton.jit
def double_rows_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2)


@triton.jit
def double_some_kernel(x, out, rows, BLOCK: tl.constexpr):
    if tl.program_id(0) < tl.load(rows):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) * 2)


def first_rows(x, rows):
    return torch.where(torch.arange(4096, device=x.device) < rows * 256, x.double() * 2, 0.0)


def grid() -> Step:
    """The number of live rows sizes the launch grid; the graph launches the grid of the capture."""
    now = {}

    def fn(x):
        out = torch.zeros_like(x)
        double_rows_kernel[(now["rows"],)](x, out, BLOCK=256)
        return out

    return step(fn, lambda x: first_rows(x, now["rows"]), advance=lambda i: now.update(rows=i + 1))


def grid_fixed() -> Step:
    """The grid is the largest one, and each program looks on the device whether its row is alive."""
    rows = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def fn(x):
        out = torch.zeros_like(x)
        double_some_kernel[(16,)](x, out, rows, BLOCK=256)
        return out

    return step(fn, lambda x: first_rows(x, rows), state=lambda: {"rows": rows}, advance=lambda i: rows.fill_(i + 1))


def plan() -> Step:
    """A plan on the device is made anew when the host says that the length has changed: the capture saw no change."""
    plan, host = full(0, 1), {"length": 64, "planned": None}

    def fn(x):
        if host["planned"] != host["length"]:
            host["planned"] = host["length"]
            plan.fill_(host["length"]).div_(16).ceil_()
        return x * plan

    def grow(i):
        host["length"] = 64 + 32 * max(0, i - 2)

    return step(fn, lambda x: x.double() * -(-host["length"] // 16), advance=grow)


def plan_fixed() -> Step:
    """The length lies on the device, and the plan is made from it in every call."""
    length = full(64, 1)

    def fn(x):
        return x * (length / 16).ceil()

    return step(
        fn,
        lambda x: x.double() * (length.double() / 16).ceil(),
        state=lambda: {"length": length},
        advance=lambda i: length.fill_(64 + 32 * max(0, i - 2)),
    )


def cache_by_cat() -> Step:
    """The cache grows by torch.cat, a new and larger tensor each call; the graph knows the one of the capture."""
    now = {"cache": full(1, 64)}

    def fn(x):
        now["cache"] = torch.cat([now["cache"], x[:64]])
        return x + now["cache"].mean()

    def reference(x):
        return x.double() + torch.cat([now["cache"], x[:64]]).double().mean()

    return step(fn, reference, state=lambda: dict(now))


def cache_by_cat_fixed() -> Step:
    """One cache of the largest size, written in place at a device position."""
    cache, end = full(0), torch.full((1,), 64, dtype=torch.int64, device=DEVICE)
    at = torch.arange(64, device=DEVICE)

    def fn(x):
        cache.index_copy_(0, end + at, x[:64])
        end.add_(64)
        return x + cache.sum() / end

    def reference(x):
        return x.double() + cache.double().index_copy(0, end + at, x[:64].double()).sum() / (end + 64)

    return step(fn, reference, state=lambda: {"cache": cache, "end": end})


def window_rebound() -> Step:
    """A sliding window is bound anew each call; the graph goes on reading the window of the capture."""
    now = {"window": full(1, 256)}

    def fn(x):
        now["window"] = torch.cat([now["window"][64:], x[:64]])
        return x + now["window"].sum()

    def reference(x):
        return x.double() + torch.cat([now["window"][64:], x[:64]]).double().sum()

    return step(fn, reference, state=lambda: dict(now))


def window_rebound_fixed() -> Step:
    """The window is shifted in place."""
    window = full(1, 256)

    def fn(x):
        window.copy_(torch.cat([window[64:], x[:64]]))
        return x + window.sum()

    def reference(x):
        return x.double() + torch.cat([window[64:], x[:64]]).double().sum()

    return step(fn, reference, state=lambda: {"window": window})
