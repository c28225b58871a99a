"""Calls of V3.2's decode; as a process with TRITON_INTERPRET=1 it prints the interpreted kernel's errors."""

import json
import sys

import torch

from capturebook.kernels.sparse_mla_v32.formats import quantise


def make(case: str, heads: int, batch: int = 3, width: int = 200, slots: int = 300, device="cpu") -> tuple:
    """(q, cache, indices, lengths, sink, scale). "edges": empty rows, sinks at infinity, NaN in unused slots."""
    g = torch.Generator().manual_seed(5)
    rows = torch.randn(slots, 576, generator=g).bfloat16()
    q = torch.randn(batch, heads, 576, generator=g).bfloat16()
    indices = torch.stack([torch.randperm(slots - 1, generator=g)[:width] for _ in range(batch)]).int()
    lengths = torch.randint(width // 2, width + 1, (batch,), generator=g).int()
    sink = torch.randn(heads, generator=g)
    if case == "peaked":
        q = (rows[indices[:, :1].long()].float() + 0.5 * q.float()).bfloat16()
    cache = quantise(rows)
    if case == "edges":
        indices[:, ::5] = -1
        lengths[0] = 0
        indices[1] = -1
        indices[2, 1] = slots - 1
        sink[:2] = torch.tensor([torch.inf, -torch.inf])
        counts = (indices >= 0) & (torch.arange(width) < lengths[:, None])
        used = torch.zeros(slots, dtype=torch.bool)
        used[indices[counts].long()] = True
        cache[~used] = 255
    made = (q, cache, indices.contiguous(), lengths, sink)
    return (*(tensor.to(device) for tensor in made), 576**-0.5)


def interpreted(case: str) -> dict:
    from capturebook.kernels.sparse_mla import error
    from capturebook.kernels.sparse_mla.combine import combine_kernel
    from capturebook.kernels.sparse_mla.launch import split_count
    from capturebook.kernels.sparse_mla.reference import lse_error
    from capturebook.kernels.sparse_mla_v32 import decode_v32_reference
    from capturebook.kernels.sparse_mla_v32.mma import mma_v32_kernel
    from capturebook.kernels.sparse_mla_v32.op import run

    inputs = make(case, heads=8)
    constants = dict(E4M3=True, FP32=True, PDL=False, ASM=False, BLOCK_H=16, BLOCK_N=32)
    out, lse = run(mma_v32_kernel, combine_kernel, inputs[:5], inputs[5], torch.float32, **constants)
    want, want_lse = decode_v32_reference(*inputs)
    splits = split_count("mma", 3, 8, 200)
    return {"error": error(out, want), "lse_error": lse_error(lse, want_lse), "splits": splits}


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN
    json.dump({case: interpreted(case) for case in ("random", "peaked", "edges")}, sys.stdout)
