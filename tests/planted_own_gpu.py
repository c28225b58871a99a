"""Steps for the sweep of a step of one's own: with state, host work, uncapturable, wrong. On a GPU if there is one."""

import torch

from capturebook.subjects import Step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(seed: int) -> tuple:
    return (torch.randn(1 << 16, generator=torch.Generator().manual_seed(seed)).to(DEVICE),)


def double(x):
    return x * 2


def plain(batch: int = 4) -> Step:
    def make_inputs(seed):
        return (torch.randn(batch, 1 << 14, generator=torch.Generator().manual_seed(seed)).to(DEVICE),)

    return Step(
        fn=double, make_inputs=make_inputs, reference=double, twin=Step(fn=lambda x: x + x, make_inputs=make_inputs)
    )


def fills_a_cache() -> Step:
    """Each call writes row `at` of a cache of four rows: the fifth call in a row would write behind it."""
    cache, at = torch.zeros(4, 1 << 16, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def fn(x):
        cache.index_copy_(0, at, x[None])
        at.add_(1)
        return cache.sum(0)

    return Step(
        fn=fn, make_inputs=draw, state=lambda: {"cache": cache, "at": at}, reference=lambda x: x, tolerance=1e-6
    )


def host_works_between() -> Step:
    """advance() writes the factor of the next call into a buffer; a graph of many calls would have one factor."""
    factor = torch.zeros(1, device=DEVICE)
    return Step(
        fn=lambda x: x * factor,
        make_inputs=draw,
        advance=lambda i: factor.fill_(i + 1),
        reference=lambda x: x * factor,
        tolerance=1e-6,
    )


def reads_on_the_host() -> Step:
    return Step(fn=lambda x: x * x.sum().item(), make_inputs=draw, reference=lambda x: x * x.sum(), tolerance=1e-4)


def wrong_twin() -> Step:
    return Step(
        fn=double, make_inputs=draw, reference=double, twin=Step(fn=lambda x: x * 2.1, make_inputs=draw), tolerance=1e-6
    )


def does_not_compile() -> Step:
    def compiled(compile_):
        raise RuntimeError("this one does not compile")

    return Step(fn=double, make_inputs=draw, reference=double, compiled=compiled)


def drives_itself() -> Step:
    return Step(fn=double, make_inputs=draw, drive=lambda h: None)


def nothing_to_compare() -> Step:
    return Step(fn=lambda x: None, make_inputs=draw)
