"""The routed experts of a layer as two grouped matmuls over rows sorted by expert; no host synchronisation."""

import torch
from torch import Tensor


def grouped(x: Tensor, ids: Tensor, weights: Tensor, up: Tensor, down: Tensor, swiglu) -> Tensor:
    """[B, hidden]: the weighted sum of each token's experts.

    x [B, hidden]; ids [B, active] int64; weights [B, active], fp32; up [E, 2 width, hidden], gate then up; down
    [E, hidden, width]; swiglu: [N, 2 width] -> [N, width]. Rows of a group follow each other, and how many there are is
    read on the device, so shapes do not follow the routing. On a GPU bf16 only (torch's grouped_mm).
    """
    batch, active = ids.shape
    chosen, order = ids.flatten().sort()
    experts = torch.arange(len(up), device=x.device)
    ends = torch.searchsorted(chosen, experts, right=True, out_int32=True)
    rows = x[order // active]
    between = swiglu(torch.nn.functional.grouped_mm(rows, up.transpose(1, 2), offs=ends))
    out = torch.nn.functional.grouped_mm(between, down.transpose(1, 2), offs=ends)
    back = torch.empty_like(out).index_copy_(0, order, out)  # to the order of ids: a permutation
    return (back.view(batch, active, -1) * weights[:, :, None]).sum(1).to(x.dtype)


def one_by_one(x: Tensor, ids: Tensor, weights: Tensor, up: Tensor, down: Tensor, swiglu) -> Tensor:
    """The same from its definition, an expert at a time, in x's dtype (float64, say): the reference. It reads ids on
    the host."""
    out = torch.zeros_like(x)
    for expert in ids.unique().tolist():
        token, place = (ids == expert).nonzero(as_tuple=True)
        between = swiglu(x[token] @ up[expert].to(x.dtype).T)
        out.index_add_(0, token, (between @ down[expert].to(x.dtype).T) * weights[token, place, None].to(x.dtype))
    return out
