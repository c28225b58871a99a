"""Random weights of a layer, by name. Linear weights are [out, in], normal over the root of what they sum over."""

import torch
from torch import Tensor

from ...kernels.glue.reference import COPIES, MIXES
from .experts import quantised
from .shapes import RATIO, Shape

Weights = dict[str, Tensor]


def names_of(shape: Shape, kind: str, routing: str) -> dict[str, tuple]:
    """{name: (shape, what it is)} of a layer's weights; what it is: "linear", "norm", "bias", or "table" (of experts).

    qkv_a: the query's latent and the latent key-value, in one; compress, index.compress: what is pooled, and the gate
    that it is pooled by, in one (each twice as wide in CSA, where windows overlap); experts.up, shared.up: gate and up.
    """
    s = shape
    found = {
        "qkv_a": ((s.q_rank + s.head_dim, s.hidden), "linear"),
        "q_norm": ((s.q_rank,), "norm"),
        "kv_norm": ((s.head_dim,), "norm"),
        "q_b": ((s.heads * s.head_dim, s.q_rank), "linear"),
        "sink": ((s.heads,), "bias"),
        "o_a": ((s.groups, s.o_rank, s.heads * s.head_dim // s.groups), "linear"),
        "o_b": ((s.hidden, s.groups * s.o_rank), "linear"),
        "router": ((s.experts, s.hidden), "linear"),
        "experts.up": ((s.experts, 2 * s.width, s.hidden), "linear"),
        "experts.down": ((s.experts, s.hidden, s.width), "linear"),
        "shared.up": ((2 * s.width, s.hidden), "linear"),
        "shared.down": ((s.hidden, s.width), "linear"),
    }
    for site in ("attention", "ffn"):
        found |= {
            f"{site}.norm": ((s.hidden,), "norm"),
            f"{site}.mix": ((MIXES, COPIES * s.hidden), "linear"),
            f"{site}.mix_scale": ((3,), "norm"),
            f"{site}.mix_base": ((MIXES,), "bias"),
        }
    if routing == "hash":
        found["router.table"] = ((s.vocabulary, s.active), "table")
    else:
        found["router.bias"] = ((s.experts,), "bias")
    if kind != "swa":
        found |= _compressor("compress", s.hidden, s.head_dim, kind)
    if kind == "csa":
        found |= _compressor("index.compress", s.hidden, s.index_dim, kind)
        found |= {
            "index.q": ((s.index_heads * s.index_dim, s.q_rank), "linear"),
            "index.weights": ((s.index_heads, s.hidden), "linear"),
        }
    return found


def _compressor(name: str, hidden: int, dim: int, kind: str) -> dict[str, tuple]:
    series = 2 if kind == "csa" else 1
    return {
        name: ((2 * series * dim, hidden), "linear"),
        f"{name}.bias": ((RATIO[kind], series * dim), "bias"),
        f"{name}.norm": ((dim,), "norm"),
    }


def draw(
    shape: Shape, kind: str, routing: str, seed: int, device, dtype: torch.dtype, experts: str = "bf16"
) -> Weights:
    """Weights drawn on the device: linear ones in `dtype`, norms (around 1) and biases fp32, hash tables int32.

    mHC's projections are fp32, as everywhere. experts: "bf16" (in `dtype`), or "fp8", e4m3 and "NAME.scale", fp32.
    """
    generator = torch.Generator(device).manual_seed(seed)
    weights = {}
    for name, (size, what) in names_of(shape, kind, routing).items():
        if what == "table":
            # distinct experts for a token, as a router would choose
            order = torch.rand(size[0], shape.experts, device=device, generator=generator)
            weights[name] = order.topk(shape.active, dim=1).indices.int()
            continue
        kept = dtype if what == "linear" and not name.endswith(".mix") else torch.float32
        drawn = torch.randn(size, device=device, dtype=kept, generator=generator)
        if what == "linear":
            drawn *= size[-1] ** -0.5
        elif what == "norm":
            drawn = 1 + 0.1 * drawn
        if experts == "fp8" and name.startswith("experts."):
            # some experts at a time: fp32 copies of all of them would be four times the weights
            parts = [quantised(some) for some in drawn.split(32)]
            drawn = torch.cat([values for values, _ in parts])
            weights[f"{name}.scale"] = torch.cat([scale for _, scale in parts])
        weights[name] = drawn
    return weights
