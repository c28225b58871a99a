"""mHC (manifold-constrained hyper-connections) from its definition, in any floating-point dtype: the eager code.

In float64 it is the reference; in float32, with the stream's own dtype around it, the torch twin.
"""

import torch
from torch import Tensor

COPIES = 4
"""Copies of the residual stream (hc_mult)."""

MIXES = COPIES * (2 + COPIES)
"""What is projected for a token: 4 weights before the sublayer, 4 after it, a 4 x 4 matrix."""

ITERATIONS = 20
EPS = 1e-6
"""Of the Sinkhorn iterations and of the norm (hc_eps, rms_norm_eps)."""


def mhc_pre_reference(
    streams: Tensor, projection: Tensor, scale: Tensor, base: Tensor, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """(collapsed [B, D], after [B, 4], comb [B, 4, 4]) in `dtype`; arguments as `mhc_pre`.

    As transformers' DeepseekV4HyperConnection has it: the flattened stream over its root mean square, projected;
    sigmoid for the weights before and (doubled) after the sublayer; softmax and 20 Sinkhorn iterations, columns first,
    for the matrix.
    """
    rows = streams.to(dtype)
    flat = rows.flatten(1)
    flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPS)
    before, after, comb = (flat @ projection.to(dtype).T).split([COPIES, COPIES, COPIES**2], dim=-1)
    before_base, after_base, comb_base = base.to(dtype).split([COPIES, COPIES, COPIES**2])
    before_scale, after_scale, comb_scale = scale.to(dtype).unbind(0)
    before = torch.sigmoid(before * before_scale + before_base) + EPS
    after = 2 * torch.sigmoid(after * after_scale + after_base)
    comb = (comb * comb_scale + comb_base).unflatten(-1, (COPIES, COPIES))
    comb = torch.softmax(comb, dim=-1) + EPS
    comb = comb / (comb.sum(-2, keepdim=True) + EPS)
    for _ in range(ITERATIONS - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + EPS)
        comb = comb / (comb.sum(-2, keepdim=True) + EPS)
    return (before[:, :, None] * rows).sum(1), after, comb


def mhc_post_reference(
    streams: Tensor, out: Tensor, after: Tensor, comb: Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """New streams [B, 4, D] in `dtype`: copy i is after_i * out + sum over j of comb_ji * copy j."""
    mixed = torch.bmm(comb.to(dtype).transpose(1, 2), streams.to(dtype))
    return after.to(dtype)[:, :, None] * out.to(dtype)[:, None, :] + mixed
