"""Runs the glue's kernels under Triton's interpreter and prints their errors as JSON; a process of its own.

Run by test_glue_rows.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated. All in fp32, and e4m3
by integer operations: the interpreter rounds to bf16 by cutting, and does not convert to e4m3.
"""

import json
import sys

import torch

from capturebook.kernels import glue
from capturebook.kernels.glue import launch, launch_rows, mhc_post_reference, mhc_pre_reference
from capturebook.kernels.glue import reference_rows as reference
from capturebook.kernels.glue.inputs import make_inputs
from capturebook.kernels.sparse_mla import formats

TOLD = {"E4M3": False, "PDL": False}
POSITIONS = torch.tensor([0, 7, 299], dtype=torch.int32)
SLOTS = torch.tensor([5, -1, 130], dtype=torch.int32)
TABLE = reference.rotation_table(300)


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def off(got, want) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


def fp8_off(values, scales, want) -> float:
    """How many bytes and scales are not those of torch's own conversion."""
    right, right_scales = launch_rows.as_bytes(*reference.quantise_reference(want.float()))
    return float((values != right).sum() + (scales != right_scales).sum())


def quantise():
    # amax at and beside 448 times a power of two, values that are e4m3's smallest, and rows of zeros
    x = normal(6, 1280)
    x[0, :128] = torch.linspace(-1, 1, 128) * 0.875
    x[1, :128] = torch.linspace(-1, 1, 128) * 0.8750001
    x[2, :64] *= 2.0**-16
    x[3] = 0
    return {"fp8": fp8_off(*launch_rows.quantise(glue.KERNELS["quantise_kernel"], x, **TOLD), x)}


def swiglu():
    x = 20 * normal(3, 512)
    kernel, want = glue.KERNELS["swiglu_kernel"], reference.swiglu_reference(x, 10.0)
    plain = off(launch_rows.swiglu(kernel, x, 10.0, False, **TOLD), want)
    return {"fp8": fp8_off(*launch_rows.swiglu(kernel, x, 10.0, True, **TOLD), want), "plain": plain}


def heads():
    q, out, narrow = normal(3, 6, 512), normal(3, 16, 512), normal(3, 64, 128)
    turn, back = glue.KERNELS["q_heads_kernel"], glue.KERNELS["out_heads_kernel"]
    rotated = launch_rows.q_heads(turn, q, TABLE, POSITIONS, 16, PDL=False)
    want = reference.q_heads_reference(q, TABLE, POSITIONS, 16)
    alone = launch_rows.q_heads(turn, narrow, TABLE, POSITIONS, 64, False, PDL=False)
    unturned = reference.rotate_reference(out[:, :6], TABLE, POSITIONS, True).flatten(1)
    return {
        "q": off(rotated, want),
        "padding": float(rotated[:, 6:].abs().max()),
        "128 wide, no norm": off(alone, reference.rotate_reference(narrow, TABLE, POSITIONS)),
        "fp8": fp8_off(*launch_rows.out_heads(back, out, TABLE, POSITIONS, 6, True, **TOLD), unturned),
        "back": off(launch_rows.out_heads(back, out, TABLE, POSITIONS, 6, False, **TOLD), unturned),
    }


def qkv(cache):
    latent, q_norm, kv_norm, want = normal(3, 1536), normal(1024), normal(512), cache.clone()
    entry = latent[:, 1024:].contiguous()
    tensors = (TABLE, POSITIONS, cache, SLOTS)
    normed, *fp8 = launch_rows.qkv(glue.KERNELS["qkv_kernel"], (latent, q_norm, kv_norm, *tensors), **TOLD)
    right = reference.rms_norm_reference(latent[:, :1024], q_norm)
    rows = reference.rotate_reference(reference.rms_norm_reference(entry, kv_norm), TABLE, POSITIONS)
    reference.store_reference(rows, want, SLOTS)
    again = torch.zeros_like(cache)
    launch_rows.entry(glue.KERNELS["entry_kernel"], (entry, kv_norm, TABLE, POSITIONS, again, SLOTS), **TOLD)
    found = {"normed": off(normed, right), "fp8": fp8_off(*fp8, right), "entry": float((again != cache).sum())}
    if cache.dtype == torch.uint8:  # the rotary part is bf16 there, cut and not rounded
        at = SLOTS[[0, 2]]
        held, wanted = formats.dequantise(cache, at), formats.dequantise(want, at)
        rope = held[:, 448:] - wanted[:, 448:]
        found |= {"nope": off(held[:, :448], wanted[:, :448]), "cut": float((rope / wanted[:, 448:]).abs().max())}
        untouched = cache.clone()
        reference.store_reference(torch.zeros(3, 512), untouched, SLOTS)
        reference.store_reference(torch.zeros(3, 512), want, SLOTS)
        return found | {"elsewhere": float((untouched != want).sum())}
    return found | {"cache": off(cache, want)}


def mhc(batch: int, d: int):
    streams, projection, scale, base, out = make_inputs(5, batch, d)
    streams, out = streams.float(), out.float()
    _, *weights, _ = make_inputs(6, batch, d)
    norm = normal(d)
    kernels = tuple(glue.KERNELS[f"{name}_kernel"] for name in ("project", "collapse"))
    _, after, comb = mhc_pre_reference(streams, projection, scale, base)
    tensors, fp32 = (streams, projection, scale, base), torch.float32
    first = launch.pre(kernels, tensors, norm, fp32, e4m3=False, dot_fp32=True)
    before = (streams, out, after.float(), comb.float())
    new, *second = launch.post_pre(kernels, before, tuple(weights), norm, fp32, e4m3=False, dot_fp32=True)
    right = mhc_post_reference(streams, out, after, comb)
    found = {"new": off(new, right)}
    for name, got, inputs in (("first", first, tensors), ("second", second, (right, *weights))):
        collapsed, after, comb = mhc_pre_reference(*inputs)
        normed = reference.rms_norm_reference(collapsed, norm)
        weights_off = {"after": off(got[3], after), "comb": off(got[4], comb)}
        found |= {f"{name}.{key}": error for key, error in ({"normed": off(got[0], normed)} | weights_off).items()}
        found[f"{name}.fp8"] = fp8_off(got[1], got[2], got[0])
    return found


CASES = {
    "quantise": quantise,
    "swiglu": swiglu,
    "heads": heads,
    "qkv fp8": lambda: qkv(torch.zeros(4, formats.page_stride(64), dtype=torch.uint8)),
    "qkv bf16": lambda: qkv(torch.zeros(256, 512)),
    "mhc, part of a tile": lambda: mhc(3, 1024),
    "mhc, two tiles, a D that is no power of two": lambda: mhc(17, 3072),
}

if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN, or bytes with 255
    json.dump({name: case() for name, case in CASES.items()}, sys.stdout)
