"""Calls of the indexer that every implementation is held to; used by the CPU, interpreter and GPU tests."""

from dataclasses import replace

import torch

from capturebook.kernels.indexer.formats import quantise
from capturebook.kernels.indexer.inputs import Inputs, make_inputs

WIDTH = 4
"""Pages of the widest request in the edge cases."""


def with_lengths(lengths: list[int], width: int) -> Inputs:
    """Requests of these lengths, in tables of `width` pages: NaN in every key that none of them has."""
    base = make_inputs(3, batch=len(lengths), context=256 * width, max_context=256 * width)
    draw = torch.Generator().manual_seed(5)
    table = torch.randperm(len(lengths) * width, generator=draw).view(len(lengths), width) + 1
    keys = torch.randn(base.keys.shape, generator=draw, dtype=torch.bfloat16)
    unused = torch.ones(keys.shape[:2], dtype=torch.bool)
    for row, length in enumerate(lengths):
        used = torch.arange(width * 64).view(width, 64) < length
        unused[table[row]] = ~used
        table[row, ~used.any(1)] = 0
    keys[unused] = torch.nan
    return replace(base, keys=keys, page_table=table.int(), lengths=torch.tensor(lengths, dtype=torch.int32))


def edges(topk: int) -> Inputs:
    """Lengths 0, 1, topk, topk + 1, the widest, beyond the widest, negative; and one a page exactly."""
    width = max(WIDTH, topk // 64 + 1)
    return with_lengths([0, 1, topk, topk + 1, 64 * width, 64 * width + 999, -3, 64], width)


def cases(topk: int) -> dict[str, Inputs]:
    """Name: inputs. Rows are longer than topk, but for the edges."""
    width = topk // 64 + 2
    lengths = [64 * width - 5, topk + 7]
    base = with_lengths(lengths, width)
    positive = replace(base, q=base.q.abs(), weights=base.weights.abs())
    first = torch.where(base.keys.isnan(), base.keys, base.keys[base.page_table[0, 0], 0])
    few = -base.keys.abs()
    few[base.page_table[:, 0].long(), ::5] *= -1  # 13 keys of a row score more than zero
    wide = (base.keys.float() * 2.0 ** torch.linspace(-60, 60, 64)[None, :, None]).bfloat16()
    return {
        "random": make_inputs(1, batch=3, context=4 * 64 * width, max_context=8 * 64 * width),
        "edges": edges(topk),
        "all equal": replace(base, keys=first),
        "zeros after relu": replace(positive, keys=-base.keys.abs()),
        "minus zeros": replace(positive, keys=-base.keys.abs(), weights=-base.weights.abs()),
        "the edge among zeros": replace(positive, keys=few),
        "all negative": replace(base, weights=-base.weights.abs()),
        "wide range": replace(base, keys=wide),
        "fp8": make_inputs(2, batch=3, context=4 * 64 * width, max_context=8 * 64 * width, key_format="fp8"),
        "fp8 edges": replace(edges(topk), keys=quantise(edges(topk).keys)),
    }


def score_rows(length: int = 512) -> dict[str, torch.Tensor]:
    """Rows of scores [length] on which a search could go astray, by kind."""
    draw = torch.Generator().manual_seed(11)
    at = torch.arange(length)

    def normal():
        return torch.randn(length, generator=draw)

    return {
        "normal": normal(),
        "far from zero": 1e4 + 1e-3 * normal(),
        "long tail": (3 * normal()).exp(),
        "many magnitudes": normal() * torch.exp2(20 * normal()),
        "near the largest float": 5e37 * normal(),
        "denormal": 1e-40 * normal(),
        "both ends of the range": torch.where(at % 3 == 0, 3e38, -3e38),
        "one far out": torch.where(at == 5, 1e30, normal()),
        "few far out": torch.where(at < 30, 1e20, normal()),
        "few far below": torch.where(at % 12 == 11, -20 - normal().abs(), 1 + 0.01 * normal()),
        "rising": at.float(),
        "falling": -at.float(),
        "rounded": normal().round(),
        "bf16": normal().bfloat16().float(),
        "all equal": torch.full((length,), 1.5),
        "zeros of both signs": torch.where(at % 3 == 0, 0.0, -0.0),
        "few above many zeros": torch.where(at % 100 == 0, normal().abs(), 0.0),
        "two values": 1.0 + (at % 2).float(),
        "the upper value is rare": 1.0 + (at % 40 == 0).float(),
        "cut at the top": normal().clamp(max=0.5),
        "cut at zero": torch.relu(normal() - 1),
    }


def moved(inputs: Inputs, device) -> Inputs:
    return Inputs(*(tensor.to(device) for tensor in inputs.args()))
