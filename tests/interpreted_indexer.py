"""Runs the indexer's kernels under Triton's interpreter and prints their errors as JSON; a process of its own.

Run by test_indexer_interpret.py with TRITON_INTERPRET=1, which Triton reads when a kernel is decorated.
"""

import json
import sys

import torch

from capturebook.kernels.indexer import error, scores_reference
from capturebook.kernels.indexer.interpret import interpret
from indexer_cases import cases

TOPK = 48


def measure(kernel: str, inputs) -> dict:
    scores, slots = interpret(kernel, inputs.args(), TOPK)
    want = scores_reference(*inputs.args())
    found = {"scores": max(relative(scores[b, : len(w)], w) for b, w in enumerate(want) if len(w))}
    if slots is None:
        found["beyond"] = all(bool((scores[b, len(w) :] == -torch.inf).all()) for b, w in enumerate(want))
    else:
        found["beyond"] = all(bool(scores[b, len(w) :].isnan().all()) for b, w in enumerate(want))
        found["selection"] = error(slots, want, inputs.page_table, inputs.lengths)
        found["ordered"] = first_of_equals(slots, scores, inputs)
    return found


def relative(scores, want) -> float:
    return float((scores - want).abs().max() / want.abs().max().clamp(min=1e-30))


def first_of_equals(slots, scores, inputs) -> bool:
    """Whether slots come in order of position and, of equal scores at the edge, the first were taken."""
    for row, length in enumerate(inputs.lengths.clamp(0, scores.shape[1]).tolist()):
        best = scores[row, :length].sort(descending=True, stable=True).indices[:TOPK].sort().values
        want = inputs.page_table[row, best // 64] * 64 + best % 64
        if not torch.equal(slots[row, : len(want)], want.int()):
            return False
    return True


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN: scores, and slots with 2^31 - 1
    assert torch.empty(1).isnan().all()
    made = cases(TOPK)
    json.dump({name: measure(name.split("/")[0], made[name.split("/")[1]]) for name in sys.argv[1:]}, sys.stdout)
