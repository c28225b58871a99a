"""Runs the indexer's kernels under Triton's interpreter and prints their errors as JSON; a process of its own.

Run by test_indexer_interpret.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated.
"""

import json
import sys

import torch

from capturebook.kernels.indexer import error, scores_reference
from capturebook.kernels.indexer.formats import PAGE
from capturebook.kernels.indexer.interpret import interpret
from capturebook.kernels.indexer.launch import run_selection
from capturebook.kernels.indexer.pinned import TUNERS
from indexer_cases import cases, score_rows, with_lengths

TOPK = 48
ROWS = ((128, 509), (512, 509), (1024, 1021), (512, 60))
"""(BLOCK, length): longer than what stays in registers, no longer than BLOCK, with 32 scores a thread (all bits of a
word), and no longer than SHORT, which is 64."""


def measure(kernel: str, inputs, *sizes) -> dict:
    scores, slots = interpret(kernel, inputs.args(), TOPK, *sizes)
    want = scores_reference(*inputs.args())
    found = {"scores": max(relative(scores[b, : len(w)], w) for b, w in enumerate(want) if len(w))}
    if slots is None:
        found["beyond"] = all(bool((scores[b, len(w) :] == -torch.inf).all()) for b, w in enumerate(want))
    else:
        found["beyond"] = all(bool(scores[b, len(w) :].isnan().all()) for b, w in enumerate(want))
        found["selection"] = error(slots, want, inputs.page_table, inputs.lengths)
    return found


def select_rows(topk: int) -> dict:
    """{kind of row: error of its selection}: the largest over ROWS, scores given."""
    function = TUNERS["bounded"]["select_kernel"].fn
    rows = score_rows()
    scores = torch.stack(list(rows.values()))
    width = scores.shape[1] // PAGE
    table = torch.randperm(len(rows) * width, generator=torch.Generator().manual_seed(1)).view(len(rows), width).int()
    found = dict.fromkeys(rows, 0.0)
    for block, length in ROWS:
        lengths = torch.full((len(rows),), length, dtype=torch.int32)
        slots = run_selection(function, scores, table, lengths, topk, SHORT=64, BLOCK=block, WIDE=32, PDL=False)
        for row, name in enumerate(rows):
            one = slice(row, row + 1)
            wrong = error(slots[one], [scores[row, :length].double()], table[one], lengths[one])
            found[name] = max(found[name], wrong)
    return found


def relative(scores, want) -> float:
    return float((scores - want).abs().max() / want.abs().max().clamp(min=1e-30))


def case(name: str) -> dict:
    """One of the cases; "turns" in runs that span requests, whose turns count as pages."""
    kernel, _, which = name.partition("/")
    if kernel == "rows":
        return select_rows(int(which))
    if which == "turns":
        return measure(kernel, with_lengths([900, 64, 0, 1500, 1], 24), (2, 3, 32, 64, 32))
    return measure(kernel, cases(TOPK)[which])


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN: scores, and slots with 2^31 - 1
    assert torch.empty(1).isnan().all()
    json.dump({name: case(name) for name in sys.argv[1:]}, sys.stdout)
