"""The routed experts of a layer as two grouped matmuls over rows sorted by expert; no host synchronisation."""

from typing import NamedTuple

import torch
from torch import Tensor

LARGEST = 448.0
"""The largest e4m3 value."""


class Matrices(NamedTuple):
    """One matrix for each expert, [E, out, in]: bf16 (scale None), or e4m3 with a scale for each row, [E, out] fp32."""

    values: Tensor
    scale: Tensor | None = None


def quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(e4m3 values, scales fp32 without the last dimension) of rows [..., D]: a row's scale is its amax / 448."""
    x = rows.float()
    scale = (x.abs().amax(-1) / LARGEST).clamp_min(1e-12)
    return (x / scale[..., None]).to(torch.float8_e4m3fn), scale


def grouped(x: Tensor, ids: Tensor, up: Matrices, down: Matrices, swiglu) -> tuple[Tensor, Tensor]:
    """What each token's experts give, rows [B * active, hidden] sorted by expert, and which (token, choice) each row is
    of: order [B * active] int64, choices of a token side by side.

    x [B, hidden]; ids [B, active] int64; up [E, 2 width, hidden], gate then up; down [E, hidden, width]; swiglu:
    [N, 2 width] -> [N, width]. Rows of a group follow each other, and how many there are is read on the device, so
    shapes do not follow the routing. e4m3 matrices are met by rows in e4m3, and x is bf16.
    """
    active = ids.shape[1]
    # 16 bits are sorted in fewer passes than 64, which alone took 27 us on an H200
    chosen, order = ids.flatten().short().sort()
    experts = torch.arange(len(up.values), device=x.device, dtype=torch.int16)
    ends = torch.searchsorted(chosen, experts, right=True, out_int32=True)
    token = order // active
    if up.scale is None:
        between = swiglu(torch.nn.functional.grouped_mm(x[token], up.values.transpose(1, 2), offs=ends))
        return torch.nn.functional.grouped_mm(between, down.values.transpose(1, 2), offs=ends), order
    values, scale = quantised(x)
    between = swiglu(scaled_matmul(values[token], scale[token], up, ends, chosen))
    return scaled_matmul(*quantised(between), down, ends, chosen), order


def scaled_matmul(rows: Tensor, scale: Tensor, matrices: Matrices, ends: Tensor, chosen: Tensor) -> Tensor:
    """bf16 [N, out] of e4m3 rows [N, in] with their scales [N] and each row's own expert, by ends [E] of the groups.

    On a CPU, which has no such matmul, the same in bf16, in which e4m3 values are exact, and the scales behind it.
    """
    turned = matrices.values.transpose(1, 2)
    if rows.device.type == "cuda":
        return torch._scaled_grouped_mm(rows, turned, scale, matrices.scale, offs=ends, out_dtype=torch.bfloat16)
    plain = torch.nn.functional.grouped_mm(rows.bfloat16(), turned.bfloat16(), offs=ends).float()
    return (plain * scale[:, None] * matrices.scale[chosen.long()]).bfloat16()


def one_by_one(x: Tensor, ids: Tensor, up: Matrices, down: Matrices, swiglu) -> tuple[Tensor, Tensor]:
    """The same from its definition, each row by its own expert's matrices, in x's dtype (float64, say), in the order of
    ids: the reference. Rows that meet e4m3 matrices are rounded to e4m3, which is what the step is, not an error of it.
    """
    active, experts = ids.shape[1], ids.flatten()
    out = x.new_empty(ids.numel(), x.shape[1])
    each = max(1, AT_ONCE // (up.values[0].numel() * x.itemsize))
    for first in range(0, len(experts), each):
        rows = torch.arange(first, min(first + each, len(experts)), device=x.device)
        between = swiglu(_product(x[rows // active], up, experts[rows]))
        out[rows] = _product(between, down, experts[rows])
    return out, torch.arange(len(out), device=x.device)


AT_ONCE = 2**30
"""Bytes of matrices that the reference takes at a time: an expert after the other, each waited for by the host, took
200 times as many launches."""


def _product(rows: Tensor, matrices: Matrices, experts: Tensor) -> Tensor:
    """[N, out] of rows [N, in], each with its expert's matrix. experts [N]."""
    matrix = matrices.values[experts].to(rows.dtype)
    if matrices.scale is not None:
        matrix = matrix * matrices.scale[experts][..., None].to(rows.dtype)
        values, scale = quantised(rows)
        rows = values.to(rows.dtype) * scale[:, None].to(rows.dtype)
    return torch.bmm(matrix, rows[..., None])[..., 0]
