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


def free_run(shape, dtype: torch.dtype, ops) -> dict:
    """From tokens to logits by ourselves over all steps, nothing fed, beside transformers: what the two share.

    steps; logits_off: largest difference of a step's logits over its largest logit, the worst step, and the median;
    selections, experts: mean share of the reference's that are chosen too; same_token: share of greedy tokens that are
    the same. The reference computes in fp32 on the same values, in bf16 with each layer's input rounded.
    """
    watched = Watched(model_of(shape, rounded=dtype is torch.bfloat16))
    ends = ends_of(watched.model)
    requests = make_requests(BATCH, CONTEXT, CONTEXT, 0, "cpu")
    states = [make_state(shape, kind, BATCH, CONTEXT, 0, "cpu", dtype, "bf16", "bf16") for kind in LAYERS]
    weights = [weights_of(layer, dtype) for layer in watched.model.model.layers]
    stack = model.stack(shape, LAYERS, weights, states, requests, CONTEXT)
    generator = torch.Generator().manual_seed(2)
    off, selections, experts, same = [], [], [], []
    for _ in range(STEPS):
        tokens = torch.randint(shape.vocabulary, (BATCH,), generator=generator)
        logits = watched.step(tokens)
        embedded = ends.embed(tokens)
        assert torch.equal(embedded, watched.seen[0]["streams"])
        assert torch.allclose(ends.logits(watched.seen[-1]["out"]), logits, atol=1e-4 * float(logits.abs().max()))
        with torch.no_grad():
            found = stack(ops, embedded.to(dtype), tokens)
            free = ends.logits(found["2.hca.streams"])
        assert torch.isfinite(free).all()
        off.append(float((free - logits).abs().max() / logits.abs().max()))
        same.append(float((free.argmax(-1) == logits.argmax(-1)).float().mean()))
        chosen = slots_of(requests, watched.seen[1]["chosen"], shape.topk)
        selections += shares(found["1.csa.slots"], chosen)
        for number, (kind, seen) in enumerate(zip(LAYERS, watched.seen)):
            experts += shares(found[f"{number}.{kind}.experts"], seen["experts"])
    mean = {
        name: sum(x) / len(x) for name, x in (("selections", selections), ("experts", experts), ("same_token", same))
    }
    return {"steps": STEPS, "logits_off": max(off), "logits_off_median": sorted(off)[STEPS // 2], **mean}


def shares(found: torch.Tensor, wanted: torch.Tensor) -> list[float]:
    """For each row the share of what is wanted that was found; -1 is nothing."""
    rows = [({*a} - {-1}, {*b} - {-1}) for a, b in zip(found.tolist(), wanted.tolist())]
    return [len(a & b) / len(b) for a, b in rows if b]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_ends_agree_and_a_free_run_is_reported(dtype, record_property):
    """What a free run comes to is reported (pytest -rP prints it, --junitxml records it), not judged: one other
    selection changes all that follows it."""
    found = free_run(SHAPE, dtype, torch_ops())
    print(f"free run, {dtype}: {found}")
    for name, value in found.items():
        record_property(name, value)


def test_bf16_operators_agree_with_the_same_selection():
    """transformers computes in fp32 here, on the same bf16 values: in bf16 it is further from that than we are (2.0e-2
    against 1.8e-2 in the first layer), and its selections and experts are others where two scores all but tie."""
    errors, _ = run(OPERATORS, torch.bfloat16, triton_ops("mma", "bounded", "eager"), fed=True)
    assert max(errors) <= 2e-2
