"""`select`: the lightning indexer of DeepSeek-V4 as one torch operator, `capturebook::indexer_select`."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .formats import HEAD_DIM, PAGE, PAGE_BYTES, format_of
from .launch import HEADS, run
from .pinned import tuning_of
from .scores import bounded_scores_kernel, padded_scores_kernel
from .selection import select_kernel
from .twin import select_twin

KERNELS = ("stock", "bounded")
MAX_TOPK = 4096


def select(
    q: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    topk: int = 512,
    kernel: str = "bounded",
) -> Tensor:
    """The `topk` keys of each request with the largest score sum_h weights_h * relu(q_h . k), as cache slots.

    q [B, 64, 128] bf16, one query token per request; weights [B, 64] fp32; keys [pages, 64, 128] bf16, or the fp8 pages
    of formats.py, [pages, 8448] uint8; page_table [B, N] int32, the page of each 64 keys of a request in order; lengths
    [B] int32, the keys that a request has, up to 64 * N. All contiguous, on one device. Returns [B, topk] int32: slots
    (page * 64 + place in it), in no order that means anything, -1 behind them where a request has fewer. Of keys with
    equal scores any may be taken.
    kernel: "stock", scores over the padded width and torch.topk, so that time follows N; or "bounded", scores and
    selection by the lengths on the device, so that a graph captured once serves all lengths at their own cost.
    On a CPU both are the torch twin.
    No host synchronisation; scratch is one fp32 score for each of the 64 * N keys of a row. Page numbers beyond a
    length may be anything that is a page; keys and queries that count must be finite, and queries below 65504 in size
    where the keys are fp8. Raises ValueError, one line, naming the argument.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel: {kernel!r}; allowed: {', '.join(KERNELS)}")
    if not 1 <= topk <= MAX_TOPK:
        raise ValueError(f"topk: {topk}; allowed: 1 to {MAX_TOPK}")
    if q.dim() != 3:
        raise ValueError(f"q: shape {tuple(q.shape)}; allowed: [batch, {HEADS}, {HEAD_DIM}]")
    batch = q.shape[0]
    bf16, i32 = torch.bfloat16, torch.int32
    key_types = {"bf16": (bf16, (None, PAGE, HEAD_DIM)), "fp8": (torch.uint8, (None, PAGE_BYTES))}
    for name, tensor, dtype, shape in (
        ("q", q, bf16, (batch, HEADS, HEAD_DIM)),
        ("weights", weights, torch.float32, (batch, HEADS)),
        ("keys", keys, *key_types[format_of(keys)]),
        ("page_table", page_table, i32, (batch, None)),
        ("lengths", lengths, i32, (batch,)),
    ):
        if tensor.dtype != dtype:
            raise ValueError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
        if tensor.dim() != len(shape) or any(
            want is not None and have != want for have, want in zip(tensor.shape, shape, strict=True)
        ):
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            raise ValueError(f"{name}: shape {tuple(tensor.shape)}; allowed: [{wanted}]")
        if tensor.device != q.device:
            raise ValueError(f"{name}: on {tensor.device}; allowed: q's device, {q.device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: strides {tensor.stride()}; allowed: contiguous")
    return torch.ops.capturebook.indexer_select(q, weights, keys, page_table, lengths, topk, kernel, tuning_of(kernel))


@triton_op("capturebook::indexer_select", mutates_args=())
def _indexer_select(
    q: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    topk: int,
    kernel: str,
    tuning: str,  # unused here; a cache key (see sparse_mla.pinned.tuning_of)
) -> Tensor:
    tensors = (q, weights, keys, page_table, lengths)
    if q.device.type == "cpu":
        return select_twin(*tensors, topk)
    # torch finds an operator's kernels by reading its source for wrap_triton(<name>), so they are spelled out
    if kernel == "stock":
        return run(kernel, (wrap_triton(padded_scores_kernel),), tensors, topk)
    return run(kernel, (wrap_triton(bounded_scores_kernel), wrap_triton(select_kernel)), tensors, topk)


@_indexer_select.register_fake
def _(q, weights, keys, page_table, lengths, topk, kernel, tuning):
    return page_table.new_empty((len(page_table), topk))
