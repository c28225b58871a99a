"""The fp8 cache of DeepSeek-V3.2, "v32": 656 bytes a token, one token after another.

    [0, 512)      512 e4m3 values: of the key, and the value of the attention
    [512, 528)    4 fp32 scales, one for each 128 of them
    [528, 656)    64 bf16 values: the rotary part, of the key alone

A value is e4m3 * scale. Pages are as many tokens as the server likes: a slot is page * tokens a page + token.
"""

import torch
from torch import Tensor

NOPE, ROPE, GROUP = 512, 64, 128
KEY = NOPE + ROPE
TOKEN_BYTES = NOPE + 4 * (NOPE // GROUP) + 2 * ROPE
LARGEST = 448.0


def quantise(rows: Tensor) -> Tensor:
    """fp8 cache [slots, 656] uint8 of finite rows [slots, 576]; a scale is the power of two from amax / 448 on."""
    groups = rows[:, :NOPE].float().unflatten(1, (NOPE // GROUP, GROUP))
    least = (groups.abs().amax(-1) / LARGEST).clamp_min(1e-4)
    mantissa, exponent = torch.frexp(least)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    scale = torch.ldexp(torch.ones_like(least), exponent)
    cache = torch.empty(len(rows), TOKEN_BYTES, dtype=torch.uint8, device=rows.device)
    cache[:, :NOPE] = (groups / scale[..., None]).to(torch.float8_e4m3fn).flatten(1).view(torch.uint8)
    cache[:, NOPE : NOPE + 16] = scale.contiguous().view(torch.uint8)
    cache[:, NOPE + 16 :] = rows[:, NOPE:].to(torch.bfloat16).contiguous().view(torch.uint8)
    return cache


def dequantise(cache: Tensor, slots: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Keys [*slots.shape, 576] of a cache [slots, 656] at `slots`; exact in float64."""
    token = cache[slots.long()]
    nope = token[..., :NOPE].contiguous().view(torch.float8_e4m3fn).to(torch.promote_types(dtype, torch.float32))
    scale = token[..., NOPE : NOPE + 16].contiguous().view(torch.float32).to(nope.dtype)
    nope = nope.unflatten(-1, (NOPE // GROUP, GROUP)) * scale[..., None]
    rope = token[..., NOPE + 16 :].contiguous().view(torch.bfloat16)
    return torch.cat((nope.flatten(-2).to(dtype), rope.to(dtype)), dim=-1)
