"""How a call becomes launches: buffers, arguments, grids. Used by the operator, the interpreter and the build check."""

import torch
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from ..glue.launch_rows import options
from ..sparse_mla.launch import power_of_two
from .formats import HEAD_DIM, PAGE, format_of
from .twin import best_slots

HEADS = 64
RATIO = 4
"""Tokens of the context that one compressed key stands for."""

ENOUGH = 64
"""So few scores the selection compares with each other, in the memory of the result, which has room for twice as many.
With 128 it took 1.6 us more on an H200: its code did not stay in the instruction cache."""


def run(kernel: str, kernels: tuple, tensors: tuple[Tensor, ...], topk: int) -> Tensor:
    """Slots as `select`. `tensors` are q, weights, keys, page table, lengths.

    kernels: the scores' kernel and, for "bounded", the selection's, autotuned, or what torch's wrap_triton makes of
    them.
    """
    scores = run_scores(kernel, kernels[0], tensors)
    page_table, lengths = tensors[3], tensors[4]
    if kernel == "stock":
        return best_slots(scores, page_table, lengths, topk)
    return run_selection(kernels[1], scores, page_table, lengths, topk)


def run_scores(kernel: str, launched, tensors: tuple[Tensor, ...], **constants) -> Tensor:
    """[B, padded width] fp32, all the scratch that a call takes: "stock" fills it, "bounded" up to the lengths.

    constants: beside the arguments (a whole configuration if the function is not autotuned).
    """
    page_table = tensors[3]
    batch, width = page_table.shape
    scores = page_table.new_empty((batch, width * PAGE), dtype=torch.float32)
    arguments = scores_arguments(kernel, tensors, scores) | {"DOT_FP32": False} | constants
    if "E4M3" not in arguments:
        arguments["E4M3"] = arguments["FP8"] and torch.cuda.get_device_capability(page_table.device) >= (8, 9)
    if kernel == "bounded" and "PDL" not in arguments:
        arguments |= _early(launched, page_table)
    if width:
        launched[(width, batch) if kernel == "stock" else _programs](**arguments)
    return scores


def _early(launched, tensor: Tensor) -> dict:
    """How a launch is told to start before the one in front of it has ended: see `glue.launch_rows.options`."""
    told = options(launched.fn if isinstance(launched, Autotuner) else launched, tensor)
    return {name: value for name, value in told.items() if name != "E4M3"}


def _programs(meta: dict) -> tuple[int]:
    return (meta["PROGRAMS"],)


def run_selection(launched, scores: Tensor, page_table: Tensor, lengths: Tensor, topk: int, **constants) -> Tensor:
    """[B, topk] int32 slots of the best of `scores`."""
    slots = page_table.new_empty((len(page_table), topk))
    told = {} if "PDL" in constants else _early(launched, page_table)
    launched[(len(page_table),)](**selection_arguments(scores, page_table, lengths, slots), **told, **constants)
    return slots


def scores_arguments(kernel: str, tensors: tuple[Tensor, ...], scores: Tensor) -> dict:
    """Arguments of the scores' kernel by name, without DOT_FP32, E4M3, PDL and what a configuration sets."""
    names = ("q", "weights", "keys", "page_table", "lengths")
    batch, width = tensors[3].shape
    shared = dict(
        zip(names, tensors, strict=True),
        scores=scores,
        table_width=width,
        batch_bucket=power_of_two(batch),
        HEADS=HEADS,
        D=HEAD_DIM,
        PAGE=PAGE,
        FP8=format_of(tensors[2]) == "fp8",
    )
    if kernel == "stock":
        return shared
    return shared | {"batch": batch, "ROWS": max(16, power_of_two(batch))}


def selection_arguments(scores: Tensor, page_table: Tensor, lengths: Tensor, slots: Tensor) -> dict:
    """Arguments of `select_kernel` by name, without PDL and what a configuration sets."""
    batch, topk = slots.shape
    return dict(
        scores=scores,
        page_table=page_table,
        lengths=lengths,
        slots=slots,
        topk=topk,
        table_width=page_table.shape[1],
        batch_bucket=power_of_two(batch),
        PAGE=PAGE,
        TOPK=power_of_two(topk),
        ENOUGH=min(ENOUGH, power_of_two(topk + 1) // 4) if topk >= 32 else 0,
    )
