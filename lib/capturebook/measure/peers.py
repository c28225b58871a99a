"""Other implementations of sparse MLA decode, timed beside ours when asked for: torch's own and FlashMLA.

Each is `setup(inputs) -> call`, where `call() -> (out [B, H, 512], lse [B, H])` is what is timed. What a server would
do once for many layers (FlashMLA's schedule, queries written into padded heads) is done in `setup`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

FLASHMLA = "flashmla"
FLASHMLA_HEADS = (64, 128)


@dataclass(frozen=True)
class Peer:
    """`what` it runs; `setup` (see above); `heads` it has kernels for, None for any, fewer are padded."""

    what: str
    setup: Callable
    heads: tuple[int, ...] | None = None
    caches: tuple[str, ...] = ("bf16", "fp8")
    module: str = ""

    def padded(self, heads: int) -> int:
        """Heads that it computes for `heads`."""
        return next((most for most in self.heads or (heads,) if heads <= most), heads)


def missing(name: str, cache: str, heads: int, sm: int) -> str:
    """Why a peer cannot be timed here, or ""."""
    peer = PEERS[name]
    if cache not in peer.caches:
        return f"{name} does not read a {cache} cache"
    if peer.heads and heads > peer.heads[-1]:
        return f"{name} has no kernel for {heads} heads"
    if peer.module and find_spec(peer.module) is None:
        return f"{name}: {peer.module} is not installed (pip install --no-deps sgl-flash-mla)"
    if peer.module == "flash_mla" and sm not in (90, 100, 103):
        return f"{name} has kernels for sm_90 and sm_100, not for sm_{sm}"
    return ""


def gathered(q, window_cache, window_indices, window_lengths, extra_cache, extra_indices, extra_lengths):
    """(keys [B, N, 512] bf16, valid [B, N]): both lists, gathered and dequantised, zero where not valid; V3.2's 576."""
    import torch

    from ..kernels.sparse_mla.formats import rows_at

    found = []
    for cache, indices, lengths in (
        (window_cache, window_indices, window_lengths),
        (extra_cache, extra_indices, extra_lengths),
    ):
        position = torch.arange(indices.shape[1], device=indices.device, dtype=lengths.dtype)
        valid = (indices >= 0) & (position < lengths[:, None])
        rows = rows_at(cache, torch.where(valid, indices, 0))
        found.append((rows.masked_fill(~valid[:, :, None], 0.0), valid))
    rows, valid = zip(*found)
    return torch.cat(rows, dim=1), torch.cat(valid, dim=1)


def gather_bmm(*args):
    """Gather, matmul, softmax, matmul: bf16 operands, sums in fp32. Arguments and results as `decode`.

    The weights are rounded as those of a running softmax are, the largest being 1, and divided by their sum after the
    matmul: rounded after the division, the only token of a short list would be off by up to 2 ** -9.
    """
    import torch

    *tensors, sink, scale = args
    q = tensors[0]
    rows, valid = gathered(*tensors)
    scores = torch.bmm(q, rows.transpose(1, 2), out_dtype=torch.float32) * scale
    scores = scores.masked_fill(~valid[:, None, :], -math.inf)
    top = scores.amax(dim=-1)
    weights = torch.exp(scores - top[:, :, None])
    total = weights.sum(dim=-1)
    out = torch.bmm(weights.to(q.dtype), rows[:, :, :512], out_dtype=torch.float32)
    return (out / (total + torch.exp(sink - top))[:, :, None]).to(q.dtype), top + torch.log(total)


def with_sink(rows, valid):
    """The gathered rows and their mask with one row more, zeros: its score is the sink, and it adds nothing to out."""
    import torch

    zero = rows.new_zeros((len(rows), 1, rows.shape[2]))
    return torch.cat((rows, zero), dim=1), torch.cat((valid, valid.new_ones((len(rows), 1))), dim=1)


def without_sink(lse, sink):
    """lse of the scores alone from that with the sink's."""
    import torch

    return lse + torch.log1p(-torch.exp(sink - lse))


def sdpa(*args):
    """torch's memory-efficient attention on gathered rows (the others refuse 512 wide heads), heads as query rows."""
    import torch

    *tensors, sink, scale = args
    q = tensors[0]
    rows, valid = with_sink(*gathered(*tensors))
    batch, heads, _ = q.shape
    width = rows.shape[1]
    # the kernel reads the mask in rows of a multiple of 8, and in q's dtype
    bias = q.new_full((batch, 1, heads, -(-width // 8) * 8), -math.inf)[..., :width]
    bias.masked_fill_(valid[:, None, None, :], 0.0)
    bias[..., -1] = sink.to(q.dtype)
    kv = rows[:, None]
    found = torch.ops.aten._scaled_dot_product_efficient_attention(q[:, None], kv, kv, bias, True, scale=scale)
    return found[0][:, 0], without_sink(found[1][:, 0, :heads], sink)


def flex(*args):
    """flex_attention, compiled, on gathered rows, heads as query rows."""
    *tensors, sink, scale = args
    rows, valid = with_sink(*gathered(*tensors))
    out, lse = _flex()(tensors[0][:, None], rows[:, None], valid, sink, scale)
    return out[:, 0], without_sink(lse[:, 0], sink)


def _flex():
    """The compiled function, made once a process."""
    if "function" not in _compiled:
        import torch
        from torch.nn.attention.flex_attention import flex_attention

        def function(q, kv, valid, sink, scale):
            last = kv.shape[2] - 1

            def score_mod(score, b, h, i, j):
                return torch.where(j == last, sink[i], torch.where(valid[b, j], score, -math.inf))

            return flex_attention(q, kv, kv, score_mod=score_mod, scale=scale, return_lse=True)

        _compiled["function"] = torch.compile(function, fullgraph=True, dynamic=False)
    return _compiled["function"]


_compiled: dict[str, Callable] = {}


def _plain(function, inputs):
    return partial(function, *inputs.args())


def flashmla(inputs):
    """FlashMLA's fp8 sparse decode (sgl-flash-mla's legacy kernels), its schedule made beforehand."""
    import flash_mla

    from ..kernels.sparse_mla.formats import format_of

    q, sink, heads = _padded(inputs)
    meta, _ = flash_mla.get_mla_metadata()
    window = (inputs.window_cache, inputs.window_indices, inputs.window_lengths)
    extra = (inputs.extra_cache, inputs.extra_indices, inputs.extra_lengths)
    (cache, indices, lengths), *more = [(c, i[:, None], n) for c, i, n in (window, extra) if i.shape[1]]
    named = {"softmax_scale": inputs.scale, "attn_sink": sink, "use_legacy": True}
    named |= {"indices": indices}
    if format_of(cache) != "v32":  # its kernel for V3.2 takes no lengths; beyond them the list says -1
        named |= {"topk_length": lengths}
    if more:
        ((extra, indices, lengths),) = more
        named |= {"extra_k_cache": _paged(extra), "extra_indices_in_kvcache": indices, "extra_topk_length": lengths}
    first = _paged(cache)

    def call():
        out, lse = flash_mla.flash_mla_with_kvcache(q[:, None], first, None, None, 512, meta, **named)
        return out[:, 0, :heads], lse[:, :heads, 0]

    call()  # makes the schedule
    return call


def flashmla_prefill(inputs):
    """FlashMLA's bf16 sparse prefill, a query row a request; both caches in one tensor, laid out beforehand."""
    import flash_mla
    import torch

    q, sink, heads = _padded(inputs)
    kv = torch.cat((inputs.window_cache, inputs.extra_cache))[:, None]
    first = len(inputs.window_cache)
    extra = torch.where(inputs.extra_indices >= 0, inputs.extra_indices + first, -1)
    indices = torch.cat((inputs.window_indices, extra), dim=1)[:, None].contiguous()

    def call():
        out, _, lse = flash_mla.flash_mla_sparse_fwd(
            q, kv, indices, inputs.scale, 512, attn_sink=sink, use_legacy=True, return_log2_lse=None
        )
        return out[:, :heads], lse[:, :heads]

    return call


def _padded(inputs):
    """(q, sink, heads): query heads padded with zeros to what FlashMLA has kernels for, as servers lay them out."""
    heads = inputs.q.shape[1]
    most = PEERS[FLASHMLA].padded(heads)
    if heads == most:
        return inputs.q, inputs.sink, heads
    q = inputs.q.new_zeros((len(inputs.q), most, inputs.q.shape[2]))
    q[:, :heads] = inputs.q
    sink = inputs.sink.new_zeros(most)
    sink[:heads] = inputs.sink
    return q, sink, heads


def _paged(cache):
    """[pages, tokens, 1, bytes a token], FlashMLA's view of an fp8 cache (the kernel itself knows where scales lie)."""
    from ..kernels.sparse_mla.formats import TOKEN_BYTES, format_of, page_tokens

    if format_of(cache) == "v32":
        return cache.view(-1, 64, 1, cache.shape[1])
    tokens = page_tokens(cache.shape[1])
    shape = (len(cache), tokens, 1, TOKEN_BYTES)
    return cache.as_strided(shape, (cache.shape[1], TOKEN_BYTES, TOKEN_BYTES, 1))


PEERS = {
    FLASHMLA: Peer(
        "FlashMLA fp8 decode (sgl-flash-mla, legacy kernels), its schedule made before the graph; lists of V3.2 whole",
        flashmla,
        FLASHMLA_HEADS,
        ("fp8", "v32"),
        "flash_mla",
    ),
    "flashmla_prefill": Peer(
        "FlashMLA bf16 sparse prefill (sgl-flash-mla, legacy kernels), one query row a request",
        flashmla_prefill,
        FLASHMLA_HEADS,
        ("bf16",),
        "flash_mla",
    ),
    "gather_bmm": Peer("torch: gather, bmm, softmax, bmm", partial(_plain, gather_bmm), caches=("bf16", "fp8", "v32")),
    "sdpa": Peer("torch: gather, memory-efficient attention", partial(_plain, sdpa)),
    "flex_attention": Peer("torch: gather, compiled flex_attention", partial(_plain, flex)),
}
"""By name. FlashMLA comes with the extra `peers`; the rest is torch."""
