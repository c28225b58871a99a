"""What is timed beside our kernels: who can run where, what FlashMLA is given, whether the right rows are gathered."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from capturebook.kernels.sparse_mla import decode_reference, error
from capturebook.kernels.sparse_mla.inputs import make_inputs
from capturebook.kernels.sparse_mla.shapes import SHAPES
from capturebook.measure import peers, sweep, sweep_point, variants
from capturebook.params import Params
from sweep_cases import POINT, SMALL


def test_an_unknown_peer_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^peers: 'cutlass'; allowed: flashmla, flashmla_prefill, gather_bmm, sdpa"):
        sweep.plan_sweep(Params(options={"peers": ["cutlass"]}), {})


def test_a_peer_that_cannot_run_here_says_why(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert peers.missing("flashmla", "bf16", 64, 90) == "flashmla does not read a bf16 cache"
    assert "flash_mla is not installed (pip install --no-deps sgl-flash-mla)" in peers.missing(
        "flashmla", "fp8", 64, 90
    )
    monkeypatch.setattr(peers, "find_spec", lambda name: name)
    assert peers.missing("flashmla", "fp8", 64, 90) == ""
    assert peers.missing("flashmla", "fp8", 64, 120) == "flashmla has kernels for sm_90 and sm_100, not for sm_120"
    assert peers.missing("flashmla", "fp8", 256, 90) == "flashmla has no kernel for 256 heads"
    assert peers.missing("sdpa", "fp8", 8, 120) == ""


def test_a_peer_that_refuses_is_named_and_ours_is_not_excused(monkeypatch):
    def refuses(inputs):
        raise AssertionError("indices must be a multiple of 64\nmore")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setitem(peers.PEERS, "gather_bmm", peers.Peer("refuses", refuses))
    inputs, left = sweep_point.draw(POINT, SMALL, 0, "cpu"), {}
    named = {"auto": {"kernel": "auto", "tuning": "pinned"}, "other": {"kernel": "gather_bmm", "tuning": "none"}}
    found = sweep.calls_of({**POINT, "variants": named}, inputs, left)
    assert list(found) == ["auto"] and len(found["auto"]) == len(inputs)
    assert left == {"other": "AssertionError: indices must be a multiple of 64"}
    monkeypatch.setattr(variants, "prepare", lambda *args: refuses)
    with pytest.raises(AssertionError, match="multiple of 64"):
        sweep.calls_of({**POINT, "variants": {"auto": named["auto"]}}, inputs, {})


def test_heads_are_padded_to_what_is_computed():
    assert [peers.PEERS["flashmla"].padded(heads) for heads in (8, 64, 65)] == [64, 64, 128]
    text = "BLOCK_H=16 BLOCK_N=32 num_warps=4 num_stages=2"
    assert variants.padded_heads({"kernel": "mma"}, 8, text) == 16
    assert variants.padded_heads({"kernel": "mma"}, 64, text) == 64
    assert variants.padded_heads({"kernel": "simt"}, 8, "BLOCK_N=16 num_warps=4 num_stages=1") == 8
    assert variants.padded_heads({"kernel": "gather_bmm"}, 8, "") == 8


def test_flashmla_is_given_pages_lists_and_padded_heads(monkeypatch):
    """Its call as its documentation has it: pages of tokens, one list or two, no lengths for V3.2's kernel."""
    seen = []

    def kernel(q, cache, table, lengths, width, schedule, **named):
        seen.append((q, cache, named))
        return q.new_zeros(len(q), 1, q.shape[2], width), q.new_zeros(len(q), q.shape[2], 1)

    stub = SimpleNamespace(get_mla_metadata=lambda: ("schedule", None), flash_mla_with_kvcache=kernel)
    monkeypatch.setitem(sys.modules, "flash_mla", stub)
    for name, heads, padded in (("flash", 8, 64), ("window", 64, 64), ("v32", 128, 128)):
        shape = SHAPES[name]
        inputs = make_inputs(0, 2, heads, cache=shape.cache or "fp8", **shape.inputs(8192))
        out, lse = peers.PEERS["flashmla"].setup(inputs)()
        assert out.shape == (2, heads, 512) and lse.shape == (2, heads)
        q, cache, named = seen[-1]
        assert q.shape == (2, 1, padded, 576 if name == "v32" else 512) and named["attn_sink"].shape == (padded,)
        assert ("extra_k_cache" in named) == ("extra_topk_length" in named) == (name == "flash")
        assert ("topk_length" in named) == (name != "v32")
        listed = inputs.extra_indices if name == "v32" else inputs.window_indices
        assert named["indices"].shape == (2, 1, listed.shape[1]) and (named["indices"][:, 0] == listed).all()
        assert cache.shape[1:] == ((64, 1, 656) if name == "v32" else (256, 1, 584))


def test_flashmla_reads_the_pages_as_they_lie():
    cache = torch.arange(3 * 37_440, dtype=torch.int64).to(torch.uint8).view(3, 37_440)
    pages = peers._paged(cache)
    assert pages.shape == (3, 64, 1, 584) and pages.stride() == (37_440, 584, 584, 1)
    assert torch.equal(pages[2, 63, 0], cache[2, 63 * 584 : 64 * 584])


def test_peers_gather_what_the_reference_reads():
    """With an exact softmax on the gathered rows, the reference's result: rows, masks and caches are right."""
    for cache in ("bf16", "fp8"):
        one = make_inputs(3, 2, 16, 1024, holes=0.2, cache=cache)
        *tensors, sink, scale = one.args()
        rows, valid = peers.gathered(*tensors)
        scores = (one.q.double() @ rows.double().mT * scale).masked_fill(~valid[:, None], -math.inf)
        lse = torch.logsumexp(scores, -1)
        out = torch.exp(scores - torch.logaddexp(lse, sink.double())[..., None]) @ rows.double()
        want, want_lse = decode_reference(*one.args())
        assert error(out, want) < 1e-6 and torch.allclose(lse, want_lse)


def test_a_sink_as_one_row_more_is_the_sink():
    one = make_inputs(4, 2, 16, 1024, kind="sink", holes=0.1)
    *tensors, sink, scale = one.args()
    rows, valid = peers.with_sink(*peers.gathered(*tensors))
    scores = (one.q.double() @ rows.double().mT * scale).masked_fill(~valid[:, None], -math.inf)
    scores[:, :, -1] = sink.double()
    lse = torch.logsumexp(scores, -1)
    want, want_lse = decode_reference(*one.args())
    assert error(torch.softmax(scores, -1) @ rows.double(), want) < 1e-6
    assert torch.allclose(peers.without_sink(lse, sink.double()), want_lse)
