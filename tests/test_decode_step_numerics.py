"""The decode step's layers against transformers' DeepSeek-V4, token by token until both compressors close windows."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from capturebook.kernels.routing import route_reference
from capturebook.subjects.decode_step import model
from capturebook.subjects.decode_step.ops import torch_ops, triton_ops
from capturebook.subjects.decode_step.state import make_requests, make_state
from deepseek_v4 import LAYERS, OPERATORS, SHAPE, Watched, ends_of, model_of, weights_of

pytest.importorskip(
    "transformers.models.deepseek_v4",
    reason="needs transformers >= 5.17, which has DeepSeek-V4: pip install 'capturebook[reference]'",
)

BATCH, STEPS, CONTEXT = 2, 140, 256
"""A window of 128 tokens, and 35 of 4."""


def slots_of(requests, positions: torch.Tensor, topk: int) -> torch.Tensor:
    """Index positions [B, k] (-1: none) of transformers as our slots [B, topk]."""
    page = requests.page_table.gather(1, positions.clamp(min=0) // 64)
    slots = torch.where(positions >= 0, page * 64 + positions % 64, -1).int()
    return torch.nn.functional.pad(slots, (0, topk - slots.shape[1]), value=-1)


def run(shape, dtype: torch.dtype, ops, fed: bool):
    """(largest errors by layer, selections that were not the reference's by layer) over all steps.

    Every layer gets the reference's input; fed: the reference's selections and experts as well, instead of its own.
    Errors are relative to the layer's largest output.
    """
    watched = Watched(model_of(shape, rounded=dtype is torch.bfloat16))
    requests = make_requests(BATCH, CONTEXT, CONTEXT, 0, "cpu")
    states = [make_state(shape, kind, BATCH, CONTEXT, 0, "cpu", dtype, "bf16", "bf16") for kind in LAYERS]
    weights = [weights_of(layer, dtype) for layer in watched.model.model.layers]
    stack = model.stack(shape, LAYERS, weights, states, requests, CONTEXT)
    generator = torch.Generator().manual_seed(1)
    errors, differ = [0.0] * len(LAYERS), [0] * len(LAYERS)
    for _ in range(STEPS):
        tokens = torch.randint(shape.vocabulary, (BATCH,), generator=generator)
        watched.step(tokens)
        for number, (layer, seen) in enumerate(zip(stack.layers, watched.seen)):
            used = ops
            if fed:
                choose = lambda scores, active, ids=seen["experts"]: ids  # noqa: E731
                used = replace(used, route=partial(route_reference, choose=choose))
            wanted = {"experts": seen["experts"]}
            if "chosen" in seen:
                wanted["slots"] = slots_of(requests, seen["chosen"], shape.topk)
            if fed and "slots" in wanted:
                used = replace(used, select=lambda *args, slots=wanted["slots"]: slots)
            with torch.no_grad():
                got = layer(used, stack.lists(), seen["streams"].to(dtype), tokens)
            error = (got["streams"].float() - seen["out"]).abs().max() / seen["out"].abs().max()
            errors[number] = max(errors[number], float(error))
            assert got.keys() == wanted.keys() | {"streams"}
            differ[number] += sum(not torch.equal(got[n].sort().values, wanted[n].sort().values) for n in wanted)
        requests.positions.add_(1)
    print(f"{dtype}: errors {errors}, selections that differ {differ}")
    return errors, differ


def test_fp32_layers_agree_and_choose_the_same():
    errors, differ = run(SHAPE, torch.float32, torch_ops(), fed=False)
    assert max(errors) <= 1e-4
    assert not any(differ)


def test_the_ends_agree_and_a_free_run_is_reported():
    """From tokens to logits by ourselves, nothing fed: printed, not judged; another selection would change the rest."""
    watched = Watched(model_of(SHAPE))
    ends, fp32 = ends_of(watched.model), torch.float32
    requests = make_requests(BATCH, CONTEXT, CONTEXT, 0, "cpu")
    states = [make_state(SHAPE, kind, BATCH, CONTEXT, 0, "cpu", fp32, "bf16", "bf16") for kind in LAYERS]
    weights = [weights_of(layer, fp32) for layer in watched.model.model.layers]
    stack = model.stack(SHAPE, LAYERS, weights, states, requests, CONTEXT)
    generator = torch.Generator().manual_seed(2)
    worst, overlap = 0.0, []
    for _ in range(20):
        tokens = torch.randint(SHAPE.vocabulary, (BATCH,), generator=generator)
        logits = watched.step(tokens)
        assert torch.equal(ends.embed(tokens), watched.seen[0]["streams"])
        assert torch.allclose(ends.logits(watched.seen[-1]["out"]), logits, atol=1e-4 * float(logits.abs().max()))
        with torch.no_grad():
            found = stack(torch_ops(), ends.embed(tokens), tokens)
        free = ends.logits(found["2.hca.streams"])
        worst = max(worst, float((free - logits).abs().max() / logits.abs().max()))
        chosen = slots_of(requests, watched.seen[1]["chosen"], SHAPE.topk)
        overlap += [len(set(a) & set(b)) / len(set(b)) for a, b in zip(found["1.csa.slots"].tolist(), chosen.tolist())]
    print(f"free run: logits off by {worst}, selections shared {sum(overlap) / len(overlap):.3f}")


def test_bf16_operators_agree_with_the_same_selection():
    """transformers computes in fp32 here, on the same bf16 values: in bf16 it is further from that than we are (2.0e-2
    against 1.8e-2 in the first layer), and its selections and experts are others where two scores all but tie."""
    errors, _ = run(OPERATORS, torch.bfloat16, triton_ops("mma", "bounded", "eager"), fed=True)
    assert max(errors) <= 2e-2
