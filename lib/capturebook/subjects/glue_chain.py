"""The glue of one DeepSeek-V4-Flash layer as a subject: all that stands between GEMMs, attention and experts.

The FFN of the layer before has just ended. mHC after it and before the attention, with the norm; norms, rotation and
the cache entry; the query's heads; the attention's output; mHC after the attention and before the FFN, with the norm;
SwiGLU. What GEMMs and attention would have computed in between are inputs. Fused it is 8 launches; the twin is the
eager code.
"""

import torch

from ..kernels import glue
from ..kernels.glue.cost import chain_cost
from ..kernels.glue.inputs import make_inputs, make_layer
from ..kernels.glue.reference import mhc_post_reference, mhc_pre_reference
from ..kernels.glue.reference_rows import (
    dequantise,
    q_heads_reference,
    quantise_reference,
    rms_norm_reference,
    rotate_reference,
    store_reference,
    swiglu_reference,
)
from ..kernels.sparse_mla.formats import dequantise as cache_rows
from .step import Step

LIMIT, Q, PAGE = 10.0, 1024, 2
"""SwiGLU's clamp; width of the query's latent; tokens a page of the cache that is written: small, so that it is made of
what the chain touches."""

ROUNDED = 8e-3
"""Of the largest value: two roundings to bf16, of the new stream and of what is made of it, 2 ** -9 each, and some."""


def build(batch: int = 8, hidden: int = 4096, heads: int = 64) -> Step:
    """The chain on CUDA, or on a CPU. hidden: width of one copy, a multiple of 1024, below 4096 for tests."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sites = [(*make_inputs(seed, 1, hidden, device)[1:4], torch.ones(hidden, device=device)) for seed in (0, 1)]
    fixed = make_layer(0, 1, heads, PAGE, device)
    table, norms = fixed["table"], fixed["norms"]

    def inputs(seed: int) -> tuple:
        streams, projection, scale, base, out = make_inputs(seed, batch, hidden, device)
        layer = make_layer(seed, batch, heads, PAGE, device)
        _, after, comb = glue.mhc_pre(streams, projection, scale, base)
        names = ("latent", "q", "attended", "gate_up", "positions", "cache", "slots")
        return streams, out, after, comb, layer["attention"][:, :hidden].contiguous(), *(layer[n] for n in names)

    def fused(streams, out, after, comb, attention, latent, q, attended, gate_up, positions, cache, slots):
        new, *first, after, comb = glue.mhc_post_pre_norm(streams, out, after, comb, *sites[0])
        query = glue.qkv_norm_store(latent, *norms, table, positions, cache, slots)
        rotated = glue.q_norm_rope(q, table, positions)
        back = glue.rope_inverse_quantise(attended, table, positions)
        new, *second, after, comb = glue.mhc_post_pre_norm(new, attention, after, comb, *sites[1])
        return named(new, first, second, query, rotated, back, glue.swiglu_quantise(gate_up, LIMIT), cache, after, comb)

    def eager(*given):
        return from_references(given, sites, norms, table, torch.float32)

    def check(given: tuple, outputs: dict) -> bool:
        want = from_references(given, sites, norms, table, torch.float64)
        return all(near(outputs, want, given[-1]))

    least = chain_cost(batch, hidden, heads)
    common = {"make_inputs": inputs, "check": check, "cost": lambda *given: (least.bytes, least.flops)}
    return Step(fn=fused, twin=Step(fn=eager, **common), kernels=dict(glue.KERNELS), **common)


def from_references(given: tuple, sites: list, norms: tuple, table, dtype: torch.dtype) -> dict:
    """What the chain returns, in torch ops of `dtype`. The cache among `given` is written.

    In float32 as the eager model has it: each result rounded to its own dtype. In float64 nothing is rounded, and
    "values" are what fp8 stands for.
    """
    streams, out, after, comb, attention, latent, q, attended, gate_up, positions, cache, slots = given
    exact = dtype == torch.float64

    def bf16(x):
        return x if exact else x.to(torch.bfloat16)

    def fp8(x):
        return (x, None) if exact else quantise_reference(x)

    def site(streams, out, after, comb, projection, scale, base, gain):
        new = bf16(mhc_post_reference(streams, out, after, comb, dtype))
        collapsed, after, comb = mhc_pre_reference(new, projection, scale, base, dtype)
        normed = rms_norm_reference(collapsed, gain, dtype)
        return new, (bf16(normed), *fp8(normed)), after, comb

    new, first, after, comb = site(streams, out, after, comb, *sites[0])
    query = rms_norm_reference(latent[:, :Q], norms[0], dtype)
    entry = rotate_reference(rms_norm_reference(latent[:, Q:], norms[1], dtype), table, positions, dtype=dtype)
    store_reference(entry.float(), cache, slots)
    rotated = bf16(q_heads_reference(q, table, positions, dtype=dtype))
    back = fp8(rotate_reference(attended, table, positions, True, dtype).flatten(1))
    new, second, after, comb = site(new, attention, after, comb, *sites[1])
    swiglu = fp8(swiglu_reference(gate_up, LIMIT, dtype))
    return named(new, first, second, (bf16(query), *fp8(query)), rotated, back, swiglu, cache, after, comb)


def named(new, first, second, query, rotated, back, swiglu, cache, after, comb) -> dict:
    """The chain's results by name; triples are (normed, fp8 values, scales), pairs fp8."""
    found = {"new": new, "q": rotated, "after": after, "comb": comb, "cache": cache}
    for name, (normed, *fp8) in {"attention": first, "ffn": second, "query": query}.items():
        found |= {name: normed, f"{name}.values": fp8[0], f"{name}.scales": fp8[1]}
    for name, (values, scales) in {"output": back, "swiglu": swiglu}.items():
        found |= {f"{name}.values": values, f"{name}.scales": scales}
    return found


def near(got: dict, want: dict, slots):
    """Whether each result is what float64 gives, up to its own format: bf16, fp8 with its scales, a cache entry."""
    for name in ("new", "q", "attention", "ffn", "query", "after", "comb"):
        right = want[name].double()
        yield bool((got[name].double() - right).abs().max() <= ROUNDED * right.abs().max())
    for name in ("attention", "ffn", "query", "output", "swiglu"):
        right, scales = want[f"{name}.values"], got[f"{name}.scales"]
        # half of e4m3's step: a sixteenth of a value, 2 ** -10 of the scale below 2 ** -6 of it
        step = torch.maximum(right.abs() / 16, scales.double().repeat_interleave(128, 1) / 1024)
        off = (dequantise(got[f"{name}.values"], scales) - right).abs()
        yield bool((off <= 1.01 * step + ROUNDED * right.abs().max()).all())
    held, right = (cache_rows(caches["cache"], slots) for caches in (got, want))
    yield bool((held - right).abs().max() <= right.abs().max() / 8)
