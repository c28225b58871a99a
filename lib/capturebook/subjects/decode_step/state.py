"""What outlives a decode step: paged caches, compressor rings, page tables, positions, all of them static buffers."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...kernels.compressor.stores import key_parts, row_parts
from ...kernels.indexer import formats as key_formats
from ...kernels.sparse_mla import formats
from .shapes import PAGE, RATIO, Shape


@dataclass(frozen=True)
class Requests:
    """Where a batch of requests stands. positions [B] int32: of the token that the next step takes in.

    window_pages [B] int32: each request's ring of 256 tokens. page_table [B, N] int32: the page of every 256 tokens of
    its context, for entries and index keys alike; page 0 is nobody's.
    """

    positions: Tensor
    window_pages: Tensor
    page_table: Tensor

    def lists(self, shape: Shape, kinds: list[str]) -> "Lists":
        """What the layers of one step share, for layers of these kinds."""
        at = self.positions
        back = torch.arange(shape.window, device=at.device, dtype=torch.int32)
        window = self.window_pages[:, None] * PAGE + (at[:, None] - back) % PAGE
        compressed = [kind for kind in RATIO if kind in kinds]
        entries = {kind: (at + 1) // RATIO[kind] for kind in compressed}
        second = {"swa": (self.page_table[:, :0].contiguous(), torch.zeros_like(at))}
        if "csa" in kinds:
            second["csa"] = (None, entries["csa"].clamp_max(shape.topk))
        if "hca" in kinds:
            second["hca"] = (self._every_entry("hca"), entries["hca"])
        return Lists(
            self.window_pages * PAGE + at % PAGE,
            (window, (at + 1).clamp_max(shape.window)),
            {kind: self._entry_slots(kind) for kind in compressed},
            entries,
            second,
        )

    def _entry_slots(self, kind: str) -> Tensor:
        per_page = PAGE // RATIO[kind]
        entry = self.positions // RATIO[kind]
        page = self.page_table.gather(1, (entry // per_page).long()[:, None])[:, 0]
        return page * per_page + entry % per_page

    def _every_entry(self, kind: str) -> Tensor:
        """[B, W] int32: slots of all entries that there is room for, in order; W a multiple of 64."""
        per_page = PAGE // RATIO[kind]
        width = -(-self.page_table.shape[1] * per_page // 64) * 64
        entry = torch.arange(width, device=self.positions.device)
        page = self.page_table[:, (entry // per_page).clamp_max(self.page_table.shape[1] - 1)]
        return page * per_page + (entry % per_page).int()


@dataclass(frozen=True)
class Lists:
    """Slots and lengths of one step, all int32, made once for all of its layers.

    window_slots [B]: where this step's token goes. window: slots [B, window] of the newest tokens, this one first, and
    how many there are [B]. By kind of layer: entry_slots [B], where the entry goes that this token is part of; entries
    [B], how many are complete with this token; second: what the attention reads besides, slots (None: the indexer
    chooses them) and lengths.
    """

    window_slots: Tensor
    window: tuple[Tensor, Tensor]
    entry_slots: dict[str, Tensor]
    entries: dict[str, Tensor]
    second: dict[str, tuple[Tensor | None, Tensor]]


@dataclass(frozen=True)
class LayerState:
    """One layer's caches: rows as `kernels.sparse_mla` reads them, bf16 [slots, D] or fp8 pages, and index keys.

    rings [B, tokens, 2 * series * D]: what the compressors have seen of the window that is filling, 8 tokens for CSA
    (the one before it, too), 128 for HCA. What a kind does not have is None.
    """

    window: Tensor
    entries: Tensor | None = None
    ring: Tensor | None = None
    keys: Tensor | None = None
    key_ring: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """By name, fp8 pages as views of what they hold, so that values are compared as values."""
        found = {}
        for name in self.__dataclass_fields__:
            cache = getattr(self, name)
            if cache is None:
                continue
            if cache.dtype != torch.uint8:
                found[name] = cache
            elif name == "keys":
                values, scales = key_parts(cache)
                found |= {f"{name}.values": values.view(torch.float8_e4m3fn), f"{name}.scales": scales}
            else:
                rows, scales = row_parts(cache)
                found[f"{name}.values"] = rows[..., : formats.NOPE].view(torch.float8_e4m3fn)
                found[f"{name}.rope"] = rows[..., formats.NOPE :].view(torch.bfloat16)
                found[f"{name}.scales"] = scales
        return found

    def wide(self) -> "LayerState":
        """The same values in float64, and nothing shared."""
        new = {}
        for name in self.__dataclass_fields__:
            cache = getattr(self, name)
            if cache is None:
                continue
            if cache.dtype != torch.uint8:
                new[name] = cache.to(torch.float64, copy=True)
            elif name == "keys":
                new[name] = key_formats.values_of(cache, torch.float64)
            else:
                slots = len(cache) * formats.page_tokens(cache.shape[1])
                new[name] = formats.dequantise(cache, torch.arange(slots, device=cache.device))
        return replace(self, **new)


def make_requests(batch: int, context: int, max_context: int, seed: int, device) -> Requests:
    """Requests with pages for `context` tokens each, anywhere, in tables as wide as `max_context` needs."""
    generator = torch.Generator().manual_seed(seed)
    each, width = -(-context // PAGE), -(-max_context // PAGE)
    page_table = torch.zeros(batch, width, dtype=torch.int32)
    page_table[:, :each] = torch.randperm(batch * each, generator=generator).view(batch, each) + 1
    window_pages = torch.randperm(batch, generator=generator).int()
    positions = torch.zeros(batch, dtype=torch.int32)
    return Requests(positions.to(device), window_pages.to(device), page_table.to(device))


def make_state(
    shape: Shape, kind: str, batch: int, context: int, seed: int, device, dtype: torch.dtype, cache: str, keys: str
) -> LayerState:
    """Caches full of normal values, so that a request may stand anywhere. cache, keys: "bf16" (in `dtype`) or "fp8"."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size):
        return torch.randn(size, device=device, dtype=dtype, generator=generator)

    def rows(pages: int, per_page: int):
        values = normal(pages * per_page, shape.head_dim)
        return formats.quantise(values, per_page) if cache == "fp8" else values

    window = rows(batch, PAGE)
    if kind == "swa":
        return LayerState(window)
    pages, series = batch * -(-context // PAGE) + 1, 2 if kind == "csa" else 1
    tokens = RATIO[kind] * series
    entries, ring = rows(pages, PAGE // RATIO[kind]), normal(batch, tokens, 2 * series * shape.head_dim)
    if kind == "hca":
        return LayerState(window, entries, ring)
    key_values = normal(pages, key_formats.PAGE, shape.index_dim)
    key_values = key_formats.quantise(key_values) if keys == "fp8" else key_values
    return LayerState(window, entries, ring, key_values, normal(batch, tokens, 2 * series * shape.index_dim))
