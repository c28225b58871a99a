"""Arguments of one compressor call, drawn from a seed."""

import torch
from torch import Tensor

from ..glue.reference_rows import rotation_table
from ..indexer import formats as key_formats
from ..sparse_mla import formats

KINDS = {"csa": (4, 2, 512, 64), "hca": (128, 1, 512, 2), "keys": (4, 2, 128, 64)}
"""(ratio, series, D, entries a page) of the compressors of V4: CSA's, HCA's, the indexer's."""


def make_inputs(
    seed: int,
    kind: str,
    positions: list[int],
    cache: str = "bf16",
    dtype: torch.dtype = torch.bfloat16,
    device: str | torch.device = "cpu",
) -> tuple[Tensor, ...]:
    """The tensors of `compress`, for requests at these positions; every request has pages of its own."""
    generator = torch.Generator().manual_seed(seed)
    ratio, series, d, page = KINDS[kind]
    batch = len(positions)

    def normal(*shape, dtype=dtype):
        return torch.randn(shape, generator=generator).to(dtype)

    entries = normal(batch * page, d, dtype=torch.float32 if cache == "fp8" else dtype)
    if kind == "keys":
        entries = entries.view(batch, page, d)
        entries = key_formats.quantise(entries) if cache == "fp8" else entries
    elif cache == "fp8":
        entries = formats.quantise(entries, page)
    at = torch.tensor(positions, dtype=torch.int32)
    tensors = (
        normal(batch, 2 * series * d),
        normal(batch, ratio * series, 2 * series * d),
        normal(ratio, series * d, dtype=torch.float32),
        1 + 0.1 * normal(d, dtype=torch.float32),
        rotation_table(max(positions) + 1),
        at,
        entries,
        torch.arange(batch, dtype=torch.int32) * page + at // ratio % page,
    )
    return tuple(tensor.to(device) for tensor in tensors)
