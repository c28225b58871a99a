"""How a call becomes launches: split count, buffers, arguments, grid. Used by the operator and by the interpreter."""

import torch
import triton
from torch import Tensor

from .combine import UNROLLED
from .formats import format_of, page_tokens

HEAD_DIM = 512
"""Values of a row of the output."""

MAX_SPLITS = 64

TUNED_WIDTH = 2048
"""Entries of the widest lists that a split's number of entries is tuned on, V3.2's."""


def split_count(kernel: str, batch: int, heads: int, width: int, entries: int = 0) -> int:
    """Splits of the joint index list of `width` entries, from shapes alone, so that a captured graph stays right.

    Enough programs to fill a large GPU (about one CTA per SM for "mma", five for "simt"), at least 64 entries a split.
    entries: how many a split takes instead, where that was measured; of wider lists more, once there are 256 programs
    of 64 heads: else what is merged grows with the lists (26 splits for 64 requests of 8320 entries, 64 us of 161 on
    an H200).
    """
    if entries:
        most = max(-(-TUNED_WIDTH // entries), 256 // (batch * -(-heads // 64)))
        return max(1, min(-(-width // entries), most, MAX_SPLITS))
    if kernel == "simt":
        programs, target = batch * heads, 640
    else:
        programs, target = batch * -(-heads // (16 if batch <= 16 else 64)), 128
    return max(1, min(target // programs, -(-width // 64), MAX_SPLITS))


def power_of_two(number: int) -> int:
    """The least power of two >= number, by comparisons alone, which a symbolic shape can follow."""
    power = 1
    while power < number:
        power *= 2
    return power


def run(
    main,
    combine,
    kernel: str,
    tensors: tuple[Tensor, ...],
    scale: float,
    out_dtype: torch.dtype = torch.bfloat16,
    entries: int = 0,
    **constants,
) -> tuple[Tensor, Tensor]:
    """Launches `main` over all splits and, with more than one, `combine`; (out, lse) as `decode`.

    `tensors` are q, window cache, indices and lengths, extra cache, indices and lengths, sink. `main` and `combine` are
    jitted functions, autotuned or not, or what torch's wrap_triton makes of them; `constants` go to `main` (what
    `constants_of` gives, and its whole configuration if it is not autotuned). entries: see `split_count`.
    What torch traces, and the interpreter, gets no inline PTX: torch 2.11 to 2.13 take a kernel that has some for one
    that writes to all its arguments, and compiled code would then copy the caches at every call.
    """
    q, window_indices, extra_indices, sink = tensors[0], tensors[2], tensors[5], tensors[7]
    batch, heads, _ = q.shape
    if not isinstance(combine, triton.JITFunction):
        constants |= {name: False for name in ("PDL", "ASM") if name in constants}
    if batch == 0:
        return targets(q, 1, out_dtype)
    splits = split_count(kernel, batch, heads, window_indices.shape[1] + extra_indices.shape[1], entries)
    target, target_lse = targets(q, splits, out_dtype)
    out, lse = (target, target_lse) if splits == 1 else targets(q, 1, out_dtype)

    main[main_grid(batch, heads, splits)](
        **main_arguments(tensors, target, target_lse, scale, splits == 1), **constants
    )
    if splits > 1:
        merge(combine, target, target_lse, sink, out, lse, pdl=constants.get("PDL", False))
    return out, lse


def merge(
    combine,
    partial_out: Tensor,
    partial_lse: Tensor,
    sink: Tensor,
    out: Tensor,
    lse: Tensor,
    pdl: bool,
    units: Tensor | None = None,
) -> None:
    """Launches `combine_kernel` (or what wrap_triton makes of it) on the results of all splits.

    pdl: the kernel before it was launched by the same call and lets its successor start early; then the launch may
    overlap it. units: of partial results in fp16.
    """
    arguments = combine_arguments(partial_out, partial_lse, sink, out, lse, partial_out.shape[1], pdl, units)
    options = {"launch_pdl": True} if pdl else {}
    batch, heads, d = out.shape
    options["num_warps"] = arguments["GROUP"]  # a head for each
    combine[(triton.cdiv(heads, arguments["GROUP"]), batch, d // arguments["CHUNK"])](**arguments, **options)


def targets(
    q: Tensor, splits: int, out_dtype: torch.dtype = torch.bfloat16, part_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Fresh (out, lse) of the main kernel: with one split the results of `decode`, else [B, splits, H, ...].

    part_dtype: of the splits' rows; lse is fp32.
    """
    batch, heads, _ = q.shape
    if splits == 1:
        return q.new_empty((batch, heads, HEAD_DIM), dtype=out_dtype), q.new_empty((batch, heads), dtype=torch.float32)
    out = q.new_empty((batch, splits, heads, HEAD_DIM), dtype=part_dtype)
    return out, q.new_empty((batch, splits, heads), dtype=torch.float32)


def constants_of(kernel: str, cache: str, sm: int) -> dict[str, bool]:
    """Constants of a main kernel on a GPU, besides those of its arguments and configuration. sm: 90 for 9.0."""
    constants = {"DOT_FP32": False, "PDL": sm >= 90} if kernel == "mma" else {}
    if cache != "bf16":
        constants |= {"E4M3": sm >= 89} | ({"ASM": True} if kernel == "mma" else {})
    return constants


def main_grid(batch: int, heads: int, splits: int):
    """Grid of either kernel; a configuration without BLOCK_H takes one head a program."""
    return lambda meta: (triton.cdiv(heads, meta.get("BLOCK_H", 1)), splits, batch)


def main_arguments(tensors: tuple[Tensor, ...], out: Tensor, lse: Tensor, scale: float, final: bool) -> dict:
    """Arguments of the main kernels by name, without what a configuration and `constants_of` set.

    Those of the fp8 kernels have the pages' sizes besides.
    """
    names = (
        "q",
        "window_cache",
        "window_indices",
        "window_lengths",
        "extra_cache",
        "extra_indices",
        "extra_lengths",
        "sink",
    )
    batch, heads, d = tensors[0].shape
    pages = {}
    if format_of(tensors[1]) == "fp8":
        pages = {"WINDOW_PAGE": page_tokens(tensors[1].shape[1]), "EXTRA_PAGE": page_tokens(tensors[4].shape[1])}
    return dict(
        zip(names, tensors, strict=True),
        out=out,
        lse=lse,
        scale=scale,
        window_width=tensors[2].shape[1],
        extra_width=tensors[5].shape[1],
        batch_bucket=power_of_two(batch),
        HEADS=heads,
        D=d,
        FINAL=final,
        **pages,
    )


def combine_arguments(
    partial_out: Tensor,
    partial_lse: Tensor,
    sink: Tensor,
    out: Tensor,
    lse: Tensor,
    splits: int,
    pdl: bool = False,
    units: Tensor | None = None,
) -> dict:
    """Arguments of `combine_kernel` by name; pdl as its PDL. units: of partial results in fp16, None for fp32."""
    block = power_of_two(splits)
    few = block <= UNROLLED
    widest = out.shape[2] if units is None else 256  # 0.4 us of 27 less at 64 requests of 2 splits, if they are in fp16
    return dict(
        partial_out=partial_out,
        units=partial_lse if units is None else units,
        partial_lse=partial_lse,
        sink=sink,
        out=out,
        lse=lse,
        splits=splits,
        HEADS=out.shape[1],
        D=out.shape[2],
        BLOCK_S=block,
        GROUP=4 if few else 1,
        CHUNK=max(128, min(widest, 2048 // block)) if few else 4096 // block,  # 64 or 128 values in a thread at most
        PDL=pdl,
    )
