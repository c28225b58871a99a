"""`decode_v32`: sparse MLA decode of DeepSeek-V3.2 as one torch operator, `capturebook::sparse_mla_decode_v32`."""

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from ..sparse_mla.combine import combine_kernel
from ..sparse_mla.launch import merge, split_count
from .formats import KEY, NOPE, TOKEN_BYTES
from .mma import mma_v32_kernel
from .reference import decode_v32_twin

CONFIG = {"BLOCK_H": 16, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2}
"""The only one, so that nothing is ever tuned: fits 99 KiB (sm_120), no spills with triton 3.6 and 3.9."""


def decode_v32(
    q: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor, sink: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per request over the tokens of its index list, with an attention sink.

    q [B, H, 576] bf16; cache [slots, 656] uint8 (see formats.py), values are the first 512 of a key; indices [B, N]
    int32, negative = padding; lengths [B] int32, only the leftmost `length` entries count; sink [H] fp32 (-inf: none).
    Returns out [B, H, 512] bf16 and lse [B, H] fp32 (natural log, sink excluded; -inf for an empty row, whose out is
    0). On a CPU the torch twin. No host synchronisation. Raises ValueError, one line, naming the argument.
    """
    if q.dim() != 3 or q.shape[2] != KEY or q.dtype != torch.bfloat16:
        raise ValueError(f"q: {q.dtype} {tuple(q.shape)}; allowed: bf16 [batch, heads, {KEY}]")
    batch, heads = q.shape[:2]
    for name, tensor, dtype, shape in (
        ("cache", cache, torch.uint8, (None, TOKEN_BYTES)),
        ("indices", indices, torch.int32, (batch, None)),
        ("lengths", lengths, torch.int32, (batch,)),
        ("sink", sink, torch.float32, (heads,)),
    ):
        right = tensor.dim() == len(shape) and all(w in (None, h) for w, h in zip(shape, tensor.shape))
        if tensor.dtype != dtype or not right or tensor.device != q.device or not tensor.is_contiguous():
            wanted = ", ".join("any" if w is None else str(w) for w in shape)
            given = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            raise ValueError(f"{name}: {given}; allowed: contiguous {dtype} [{wanted}] on {q.device}")
    return torch.ops.capturebook.sparse_mla_decode_v32(q, cache, indices, lengths, sink, scale)


@triton_op("capturebook::sparse_mla_decode_v32", mutates_args=())
def _decode_v32(
    q: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor, sink: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    if q.device.type == "cpu":
        return decode_v32_twin(q, cache, indices, lengths, sink, scale)
    major, minor = torch.cuda.get_device_capability(q.device)
    constants = {"E4M3": major * 10 + minor >= 89, "PDL": major >= 9, "ASM": True, "FP32": False}
    main, combine = wrap_triton(mma_v32_kernel), wrap_triton(combine_kernel)
    return run(main, combine, (q, cache, indices, lengths, sink), scale, **constants, **CONFIG)


@_decode_v32.register_fake
def _(q, *others):
    return q.new_empty((*q.shape[:2], NOPE)), q.new_empty(q.shape[:2], dtype=torch.float32)


def run(main, combine, tensors, scale: float, out_dtype: torch.dtype = torch.bfloat16, **constants):
    """Launches `main` over all splits and, with more than one, `combine`; (out, lse) as `decode_v32`."""
    q, cache, indices, lengths, sink = tensors
    batch, heads, _ = q.shape
    if not isinstance(combine, triton.JITFunction):
        constants |= {"PDL": False, "ASM": False}
    splits = split_count("mma", batch, heads, indices.shape[1])
    out = q.new_empty((batch, heads, NOPE), dtype=out_dtype)
    lse = q.new_empty((batch, heads), dtype=torch.float32)
    target, target_lse = out, lse
    if splits > 1:
        target = q.new_empty((batch, splits, heads, NOPE), dtype=torch.float32)
        target_lse = q.new_empty((batch, splits, heads), dtype=torch.float32)
    main[(-(-heads // constants["BLOCK_H"]), splits, batch)](
        q=q,
        cache=cache,
        indices=indices,
        lengths=lengths,
        sink=sink,
        out=target,
        lse=target_lse,
        scale=scale,
        width=indices.shape[1],
        HEADS=heads,
        FINAL=splits == 1,
        **constants,
    )
    if splits > 1:
        merge(combine, target, target_lse, sink, out, lse, pdl=constants["PDL"])
    return out, lse
