"""Calls of sparse MLA decode that every implementation is held to; used by the CPU, interpreter and GPU tests."""

from dataclasses import replace

import torch

from capturebook.kernels.sparse_mla.inputs import Inputs, make_inputs

UNUSED = 2**31 - 1
"""What stands beyond a length: a slot no cache has."""


def edge_inputs(heads: int = 8, device="cpu") -> Inputs:
    """One request for each edge, sinks at their limits, and NaN in every cache slot that no list names.

    0 both lengths 0; 1 nothing but -1; 2 a single extra token; 3 window only; 4 lengths beyond the lists; 5 negative
    lengths; 6 slots at the edges of pages and of the cache; 7 extra only, holes throughout.
    """
    base = make_inputs(7, batch=8, heads=heads, context=4096, window=40, topk=72, window_slots=512, extra_slots=512)
    window, extra = base.window_indices, base.extra_indices
    window_lengths = torch.tensor([0, 40, 0, 40, 99, -3, 12, 0], dtype=torch.int32)
    extra_lengths = torch.tensor([0, 72, 1, 0, 1000, -64, 12, 72], dtype=torch.int32)
    edges = torch.tensor([0, 63, 64, 127, 128, 255, 256, 257, 447, 448, 510, 511], dtype=torch.int32)
    window[1], extra[1] = -1, -1
    window[6, :12], extra[6, :12] = edges, edges.flip(0)
    extra[7, ::3] = -1
    for indices, lengths in ((window, window_lengths), (extra, extra_lengths)):
        beyond = torch.arange(indices.shape[1]) >= lengths[:, None]
        indices[beyond] = UNUSED
    sink = base.sink.clone()
    sink[:4] = torch.tensor([torch.inf, -torch.inf, 1e4, -1e4])
    caches = [_poison_unused(c, i) for c, i in ((base.window_cache, window), (base.extra_cache, extra))]
    made = replace(
        base,
        window_cache=caches[0],
        extra_cache=caches[1],
        window_lengths=window_lengths,
        extra_lengths=extra_lengths,
        sink=sink,
    )
    return Inputs(*(tensor.to(device) for tensor in made.tensors()), made.scale)


EMPTY_ROWS = [0, 1, 5]


def _poison_unused(cache: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    named = indices[(indices >= 0) & (indices != UNUSED)].long().unique()
    poisoned = torch.full_like(cache, torch.nan)
    poisoned[named] = cache[named]
    return poisoned
