"""Inputs of one sparse MLA decode call, drawn from a seed: paged caches, index lists, lengths, sink."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from . import formats_v32
from .formats import CACHES, key_width, quantise

WINDOW_PAGE, EXTRA_PAGE = 256, 64
"""Tokens a page of the two caches, as servers lay V4 out (an extra token stands for four of the context)."""

Kind = Literal["random", "peaked", "sink"]
Lengths = Literal["near", "full", "uniform"]

SHARE: dict[Lengths, float] = {"near": 7 / 8, "full": 1.0, "uniform": 1 / 2}
"""Least share of what there is that lists hold by their lengths; of uniform ones the mean."""


@dataclass(frozen=True)
class Inputs:
    """Arguments of `decode` in its order, but for the kernel. Shapes and dtypes as there."""

    q: Tensor
    window_cache: Tensor
    window_indices: Tensor
    window_lengths: Tensor
    extra_cache: Tensor
    extra_indices: Tensor
    extra_lengths: Tensor
    sink: Tensor
    scale: float

    def tensors(self) -> tuple[Tensor, ...]:
        """All but the scale."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__ if name != "scale")

    def args(self) -> tuple:
        """`decode(*inputs.args(), kernel=...)`."""
        return (*self.tensors(), self.scale)


def make_inputs(
    seed: int,
    batch: int,
    heads: int,
    context: int,
    window: int = 128,
    topk: int = 512,
    kind: Kind = "random",
    device: str | torch.device = "cpu",
    window_slots: int | None = None,
    extra_slots: int | None = None,
    holes: float = 0.0,
    cache: str = "bf16",
    ratio: int = 4,
    extra_page: int = EXTRA_PAGE,
    lengths: Lengths = "near",
) -> Inputs:
    """Inputs whose values, lengths and indices follow `seed` and whose shapes do not.

    Lists are `window` and `topk` wide, the second may be 0. A request's lengths lie between 7/8 and all of
    min(window, context) and min(topk, context // ratio); beyond them stands -1. lengths "full": all of that, as of V4's
    requests from a context of 2048 on; "uniform": both together lie anywhere from 1 to that, the window first. Its
    window is a run of tokens inside one page, its extra tokens are distinct and lie anywhere in its own pages; `holes`
    is the share of entries turned into -1 before the length.
    ratio: context tokens that an extra token stands for (4 in CSA layers, 128 in HCA, 1 in V3.2, whose window is 0).
    kind: "random", normal values; "peaked", each head's query points at one of its tokens, more or less strongly;
    "sink", sinks that outweigh all tokens. Caches of `window_slots` and `extra_slots` rows (default: enough for the
    batch, up to 2**18) are drawn on the device; cache "fp8" quantises them, in pages of 256 and `extra_page` tokens,
    "v32" token by token, 576 values wide.
    The same seed gives the same inputs on one device and torch version, whatever the format but for its rounding.
    Raises ValueError naming the argument.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind: {kind!r}; allowed: {', '.join(get_args(Kind))}")
    if cache not in CACHES:
        raise ValueError(f"cache: {cache!r}; allowed: {', '.join(CACHES)}")
    if lengths not in get_args(Lengths):
        raise ValueError(f"lengths: {lengths!r}; allowed: {', '.join(get_args(Lengths))}")
    if not 0 <= window <= WINDOW_PAGE:
        raise ValueError(f"window: {window}; allowed: 0 to {WINDOW_PAGE}, the tokens of a page")
    key = key_width(cache)
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator)

    def integers(low, high, *shape):
        return torch.randint(low, high, shape, device=device, generator=generator)

    def long(longest):
        if lengths == "near":
            return (longest - integers(0, longest // 8 + 1, batch)).int()
        return torch.full((batch,), longest, dtype=torch.int32, device=device)

    def padded(slots, length):
        keep = torch.arange(slots.shape[1], device=device) < length[:, None]
        if holes:
            keep &= torch.rand(slots.shape, device=device, generator=generator) >= holes
        return torch.where(keep, slots, -1).int()

    window_cache = normal(_pool(window_slots, "window_slots", batch * WINDOW_PAGE, WINDOW_PAGE), key)
    tokens = extra_tokens(context, ratio, extra_page)
    extra_cache = normal(_pool(extra_slots, "extra_slots", batch * tokens, extra_page), key)

    available = min(topk, context // ratio)
    window_lengths = long(min(window, context))
    if lengths == "uniform":
        both = integers(1, min(window, context) + available + 1, batch).int()
        window_lengths = both.clamp(max=min(window, context))
    page = torch.randperm(len(window_cache) // WINDOW_PAGE, device=device, generator=generator)
    page = page[torch.arange(batch, device=device) % len(page)]
    start = page * WINDOW_PAGE + integers(0, WINDOW_PAGE - window + 1, batch)
    window_indices = padded(start[:, None] + torch.arange(window, device=device), window_lengths)

    extra_lengths = both - window_lengths if lengths == "uniform" else long(available)
    page = torch.randperm(len(extra_cache) // extra_page, device=device, generator=generator)
    chosen = torch.zeros(batch, topk, dtype=torch.long, device=device)
    if available:
        order = torch.rand(batch, context // ratio, device=device, generator=generator)
        chosen[:, :available] = order.topk(available, dim=1).indices
    logical = torch.arange(batch, device=device)[:, None] * (tokens // extra_page) + chosen // extra_page
    extra_indices = padded(page[logical % len(page)] * extra_page + chosen % extra_page, extra_lengths)

    q = normal(batch, heads, key)
    if kind == "peaked":
        # entry 0 exists for every request unless it is a hole; ||k||^2 * scale is about 23
        rows, first = (window_cache, window_indices) if window else (extra_cache, extra_indices)
        target = rows[first[:, :1].clamp(min=0).long()].float()
        strength = torch.rand(batch, heads, 1, device=device, generator=generator)
        q = (q.float() * 0.5 + strength * target).bfloat16()
    sink = torch.randn(heads, device=device, generator=generator)
    if kind == "sink":
        sink = sink + 14.0  # lse of 640 random tokens is about 7
    if cache == "fp8":
        window_cache, extra_cache = quantise(window_cache, WINDOW_PAGE), quantise(extra_cache, extra_page)
    if cache == "v32":
        window_cache, extra_cache = formats_v32.quantise(window_cache), formats_v32.quantise(extra_cache)
    return Inputs(
        q,
        window_cache,
        window_indices,
        window_lengths,
        extra_cache,
        extra_indices,
        extra_lengths,
        sink,
        key**-0.5,
    )


def extra_tokens(context: int, ratio: int, page: int) -> int:
    """Slots that a request's extra tokens take: whole pages, and one at least."""
    return -(-max(context // ratio, 1) // page) * page


def _pool(slots: int | None, name: str, wanted: int, page: int) -> int:
    """Rows of a cache: as asked, in whole pages."""
    if slots is None:
        return min(wanted, 2**18)
    if slots < page or slots % page:
        raise ValueError(f"{name}: {slots}; allowed: a multiple of {page}")
    return slots
