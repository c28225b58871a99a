"""The decode calls of other layers and models on a CPU: V4-Pro, HCA, window alone, mixed lengths, two query tokens."""

from dataclasses import replace

import pytest
import torch

from capturebook.kernels.sparse_mla import decode, decode_reference, decode_twin, error
from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.kernels.sparse_mla.formats import FORMATS
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from capturebook.kernels.sparse_mla.shapes import SHAPES, shape_of


@pytest.mark.parametrize(
    "name, cache", [("v32", "v32"), *((name, cache) for name in SHAPES if name != "v32" for cache in FORMATS)]
)
def test_twin_against_float64(name, cache):
    shape = SHAPES[name]
    inputs = make_inputs(4, 2, shape.heads or 8, cache=cache, holes=0.1, **shape.inputs(8192))
    out, lse = decode_twin(*inputs.args())
    want, want_lse = decode_reference(*inputs.args())
    assert error(out, want) <= TOLERANCE and lse_error(lse, want_lse) <= 1e-3


def test_lists_are_as_wide_as_the_model_has_them():
    """FlashMLA's and sglang's figures: 128 + 512, 128 + 1024, 128 + context / 128 padded to 64."""
    widths = {name: shape.inputs(131_072)["topk"] for name, shape in SHAPES.items()}
    assert widths == {"flash": 512, "pro": 1024, "hca": 1024, "window": 0, "mixed": 512, "v32": 2048, "tp8": 512}
    assert shape_of("hca").inputs(8192)["topk"] == 64 and shape_of("hca").inputs(8320)["topk"] == 128
    assert decode_cost(1, 128, 1152).flops == 2 * 128 * 1152 * 1024
    assert decode_cost(1, 128, 2048, cache="v32").flops == 2 * 128 * 2048 * (576 + 512)
    assert shape_of("flash bf16").cache == "bf16" and shape_of("flash").cache is None
    for unknown in ("v5", "flash fp4", "v32 bf16"):
        with pytest.raises(ValueError, match=f"^shape: '{unknown}'; allowed: flash, pro, hca, window, mixed, v32, "):
            shape_of(unknown)


def test_hca_reads_every_entry_of_its_own_pages_once():
    inputs = make_inputs(1, 3, 8, **SHAPES["hca"].inputs(8192))
    for request, length in enumerate(inputs.extra_lengths.tolist()):
        slots = inputs.extra_indices[request, :length]
        assert len(slots.unique()) == length and (slots >= 0).all()
    pages = [set((row[row >= 0] // 2).tolist()) for row in inputs.extra_indices]
    assert not pages[0] & pages[1] and not pages[1] & pages[2]


def test_uniform_lengths_fill_the_window_first_and_are_never_empty():
    inputs = make_inputs(2, 400, 8, window_slots=256, extra_slots=64, **SHAPES["mixed"].inputs(8192))
    window, extra = inputs.window_lengths, inputs.extra_lengths
    assert ((extra == 0) | (window == 128)).all() and (window >= 1).all() and extra.max() <= 512
    both = (window + extra).float()
    assert abs(both.mean() - 320.5) < 5 * 185 / 20  # a uniform draw from 1 to 640, 400 times: 5 standard errors
    with pytest.raises(ValueError, match="^lengths: 'zipf'; allowed: near, full, uniform$"):
        make_inputs(0, 1, 8, 64, lengths="zipf")


@pytest.mark.parametrize("context, window, extra", [(2048, 128, 512), (512, 128, 128), (100, 100, 25)])
def test_full_lists_hold_all_there_is_and_no_slot_twice(context, window, extra):
    """A token of the second list stands for four of the context: 512 of them there are from 2048 tokens on."""
    inputs = make_inputs(3, 2, 8, **SHAPES["flash"].inputs(context, full=True))
    assert inputs.window_lengths.tolist() == [window] * 2 and inputs.extra_lengths.tolist() == [extra] * 2
    assert inputs.window_lengths.dtype == inputs.extra_lengths.dtype == torch.int32
    for indices, held in ((inputs.window_indices, window), (inputs.extra_indices, extra)):
        for row in indices:
            assert (row[:held] >= 0).all() and (row[held:] == -1).all() and len(row[:held].unique()) == held
    assert SHAPES["mixed"].inputs(8192, full=True)["lengths"] == "uniform"
    assert SHAPES["flash"].inputs(8192)["lengths"] == "near", "of steps, whose lengths differ from seed to seed"


def test_two_query_tokens_are_two_rows():
    """Speculative decoding: q [B, 2, H, 512] as [2 B, H, 512], each token with its own window, one further on."""
    base = make_inputs(6, 3, 16, 2048)
    first = base.window_indices[:, :1]
    window = torch.stack((first + torch.arange(126), first + torch.arange(1, 127)), dim=1).int()  # [B, 2, 126]
    q = torch.randn(3, 2, 16, 512, generator=torch.Generator().manual_seed(8)).bfloat16()
    rows = replace(
        base,
        q=q.flatten(0, 1),
        window_indices=window.flatten(0, 1).contiguous(),
        window_lengths=torch.full((6,), 126, dtype=torch.int32),
        extra_indices=base.extra_indices.repeat_interleave(2, dim=0),
        extra_lengths=base.extra_lengths.repeat_interleave(2),
    )
    out = decode(*rows.args())[0].view(3, 2, 16, 512)
    for request in range(3):
        for token in range(2):
            start = int(first[request]) + token
            extra = base.extra_indices[request, : base.extra_lengths[request]].long()
            keys = torch.cat((base.window_cache[start : start + 126], base.extra_cache[extra])).double()
            weights = torch.exp(q[request, token].double() @ keys.T * base.scale)
            alone = weights @ keys / (weights.sum(1) + base.sink.double().exp())[:, None]
            assert error(out[request, token][None], alone[None]) <= TOLERANCE
