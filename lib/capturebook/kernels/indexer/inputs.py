"""Inputs of one indexer call, drawn from a seed: paged keys, page table, lengths, queries, weights."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .formats import FORMATS, HEAD_DIM, PAGE, quantise
from .launch import HEADS, RATIO

Lengths = Literal["near", "full"]

SHARE: dict[Lengths, float] = {"near": 7 / 8, "full": 1.0}
"""Least share of context / 4 keys that a request has, by its lengths."""


@dataclass(frozen=True)
class Inputs:
    """Arguments of `select` in its order. Shapes and dtypes as there."""

    q: Tensor
    weights: Tensor
    keys: Tensor
    page_table: Tensor
    lengths: Tensor

    def args(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def make_inputs(
    seed: int,
    batch: int,
    context: int,
    max_context: int,
    device: str | torch.device = "cpu",
    pages: int | None = None,
    key_format: str = "bf16",
    lengths: Lengths = "near",
) -> Inputs:
    """Inputs whose values, lengths and pages follow `seed` and whose shapes do not.

    A request has between 7/8 and all of context / 4 keys, of lengths "full" all of them, and a page table as wide as
    max_context / 4 keys need. Pages lie anywhere in a cache of its own, of `pages` pages (default: one more than the
    batch fills). Page 0 is nobody's: the table's unused entries name it, and it holds NaN, as does what the last page
    of a request has beyond its length.
    Keys and queries are normal, weights normal times 64^-1/2 * 128^-1/2, signs included. The same seed gives the same
    inputs on one device and torch version. Raises ValueError naming the argument.
    """
    if key_format not in FORMATS:
        raise ValueError(f"key_format: {key_format!r}; allowed: {', '.join(FORMATS)}")
    if lengths not in get_args(Lengths):
        raise ValueError(f"lengths: {lengths!r}; allowed: {', '.join(get_args(Lengths))}")
    if not RATIO <= context <= max_context:
        raise ValueError(f"context: {context}; allowed: {RATIO} to max_context, {max_context}")
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, device=device, dtype=dtype, generator=generator)

    longest = context // RATIO
    each, width = -(-longest // PAGE), -(-(max_context // RATIO) // PAGE)
    pages = batch * each + 1 if pages is None else pages
    if pages <= batch * each:
        raise ValueError(f"pages: {pages}; allowed: more than {batch * each}, which the batch fills")
    held = longest - torch.randint(0, longest // 8 + 1, (batch,), device=device, generator=generator)
    if lengths == "full":  # drawn all the same: values are those of "near"
        held = torch.full_like(held, longest)
    order = torch.randperm(pages - 1, device=device, generator=generator)[: batch * each].view(batch, each) + 1
    page_table = torch.zeros(batch, width, dtype=torch.int32, device=device)
    page_table[:, :each] = order

    keys = normal(pages, PAGE, HEAD_DIM)
    unused = torch.zeros(pages, PAGE, dtype=torch.bool, device=device)
    unused[0] = True
    unused[order] = (torch.arange(each * PAGE, device=device) >= held[:, None]).view(batch, each, PAGE)
    keys.masked_fill_(unused[:, :, None], torch.nan)
    page_table.masked_fill_(torch.arange(width, device=device) * PAGE >= held[:, None], 0)
    return Inputs(
        q=normal(batch, HEADS, HEAD_DIM),
        weights=normal(batch, HEADS, dtype=torch.float32) * (HEADS * HEAD_DIM) ** -0.5,
        keys=quantise(keys) if key_format == "fp8" else keys,
        page_table=page_table,
        lengths=held.int(),
    )
