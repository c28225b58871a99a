"""`route` and `combine`: what stands before and behind the experts, as torch operators of namespace capturebook."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from ..glue.check import BF16, FP32, check
from ..sparse_mla.launch import power_of_two
from .reference import combine_reference, route_reference
from .routing import mix_experts_kernel, route_kernel

BLOCK = 1024


def route(
    logits: Tensor, bias: Tensor | None, table: Tensor | None, tokens: Tensor, active: int, scaling: float
) -> tuple[Tensor, Tensor]:
    """Experts of each token, ids [B, active] int64, and their weights [B, active] fp32.

    logits [B, E] bf16, scores are sqrt(softplus(logits)). bias [E] fp32: the `active` largest of scores + bias are
    chosen, of equal ones any; or table [vocabulary, active] int32: those of the line of tokens [B] int64, all of them
    lines of it; one of the two is None. Weights are the scores over their sum, times scaling. One launch; on a CPU
    torch ops. Raises ValueError, one line, naming the argument; so does `combine`.
    """
    if (bias is None) == (table is None):
        raise ValueError(f"bias: {'none' if bias is None else 'given'}, as is table; allowed: one of the two")
    batch, experts = logits.shape[0], logits.shape[-1]
    if not 1 <= active <= min(experts, 32):
        raise ValueError(f"active: {active}; allowed: 1 to {min(experts, 32)}")
    chooser = ("bias", bias, FP32, (experts,)) if table is None else ("table", table, torch.int32, (None, active))
    check(
        "logits", logits, ("logits", logits, BF16, (batch, experts)), ("tokens", tokens, torch.int64, (batch,)), chooser
    )
    return torch.ops.capturebook.route(logits, bias, table, tokens, active, scaling)


def combine(rows: Tensor, order: Tensor, weights: Tensor, shared: Tensor) -> Tensor:
    """[B, H] bf16: the weighted sum of each token's experts and the shared one.

    rows [B * active, H] bf16, row i of the (token, choice) order[i], a permutation [B * active] int64; weights
    [B, active] fp32; shared [B, H] bf16; H a multiple of 1024. Three launches.
    """
    batch, active = weights.shape
    width = rows.shape[-1]
    if width % BLOCK:
        raise ValueError(f"rows: shape {tuple(rows.shape)}; allowed: [rows, a multiple of {BLOCK}]")
    check(
        "rows",
        rows,
        ("rows", rows, BF16, (batch * active, width)),
        ("order", order, torch.int64, (batch * active,)),
        ("weights", weights, FP32, (batch, active)),
        ("shared", shared, BF16, (batch, width)),
    )
    return torch.ops.capturebook.combine_experts(rows, order, weights, shared)


@triton_op("capturebook::route", mutates_args=())
def _route(
    logits: Tensor, bias: Tensor | None, table: Tensor | None, tokens: Tensor, active: int, scaling: float
) -> tuple[Tensor, Tensor]:
    if logits.device.type == "cpu":
        return route_reference(logits, bias, table, tokens, active, scaling)
    batch, experts = logits.shape
    ids = torch.empty((batch, active), dtype=torch.int64, device=logits.device)
    weights = torch.empty((batch, active), dtype=torch.float32, device=logits.device)
    given = (logits, bias, table, tokens, ids, weights)
    wrap_triton(route_kernel)[(batch,)](**route_arguments(*given, scaling))
    return ids, weights


@_route.register_fake
def _(logits, bias, table, tokens, active, scaling):
    size = (logits.shape[0], active)
    return logits.new_empty(size, dtype=torch.int64), logits.new_empty(size, dtype=torch.float32)


@triton_op("capturebook::combine_experts", mutates_args=())
def _combine(rows: Tensor, order: Tensor, weights: Tensor, shared: Tensor) -> Tensor:
    if rows.device.type == "cpu":
        return combine_reference(rows, order, weights, shared)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    out = torch.empty_like(shared)
    batch, width = shared.shape
    wrap_triton(mix_experts_kernel)[(batch, width // BLOCK)](**combine_arguments(rows, place, weights, shared, out))
    return out


@_combine.register_fake
def _(rows, order, weights, shared):
    return torch.empty_like(shared)


def route_arguments(logits, bias, table, tokens, ids, weights, scaling: float) -> dict:
    """Arguments of `route_kernel` by name; what is not read of bias and table is the other one."""
    active, experts = ids.shape[1], logits.shape[1]
    return dict(
        logits=logits,
        bias=table if bias is None else bias,
        table=bias if table is None else table,
        tokens=tokens,
        ids=ids,
        weights=weights,
        scaling=scaling,
        experts=experts,
        E=power_of_two(experts),
        ACTIVE=active,
        SLOTS=power_of_two(active),
        HASH=bias is None,
    )


def combine_arguments(rows, place, weights, shared, out) -> dict:
    """Arguments of `mix_experts_kernel` by name."""
    return dict(
        rows=rows,
        place=place,
        weights=weights,
        shared=shared,
        out=out,
        H=shared.shape[1],
        ACTIVE=weights.shape[1],
        BLOCK=BLOCK,
    )
