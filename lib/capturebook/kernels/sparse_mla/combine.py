"""Merges the splits of one request and head, and applies the attention sink."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["splits"])
def combine_kernel(
    partial_out,  # [B, splits, H, D] fp32, each split normalised on its own
    partial_lse,  # [B, splits, H] fp32, natural log, -inf where a split was empty
    sink,
    out,
    lse,
    splits,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (head, request, CHUNK columns). BLOCK_S is a power of two >= splits.

    PDL: launched while the main kernel runs (programmatic dependent launch, sm_90 and later), whose results it waits
    for; without the launch attribute there is nothing to wait for.
    """
    head = tl.program_id(0)
    request = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    split = tl.arange(0, BLOCK_S)
    present = split < splits
    row = (request * splits + split) * HEADS + head
    own_sink = tl.load(sink + head)
    if PDL:
        tl.extra.cuda.gdc_wait()

    parts = tl.load(partial_lse + row, mask=present, other=-float("inf"))
    values = tl.load(partial_out + row[:, None] * D + columns[None, :], mask=present[:, None], other=0.0)
    top = tl.max(parts, 0)
    base = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp(parts - base)
    total = tl.sum(weights, 0)
    denominator = total + tl.exp(own_sink - base)
    merged = tl.sum(values * weights[:, None], 0) * tl.where(denominator == 0.0, 0.0, 1.0 / denominator)

    tl.store(out + (request * HEADS + head) * D + columns, merged.to(out.dtype.element_ty))
    tl.store(lse + request * HEADS + head, tl.where(total == 0.0, -float("inf"), base + tl.log(total)))
