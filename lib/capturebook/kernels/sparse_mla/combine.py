"""Merges the splits of one request and a group of heads, and applies the attention sink.

Every thread merges its own columns: the splits are a loop that is unrolled, so that all their loads are under way at
once and nothing is exchanged between threads. Few programs, since thousands of small ones cost more to start than to
run (measured on an H200 at 32 requests and 4 splits: 8192 programs of 128 threads 20 us, 2048 of them 5 us).
"""

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
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program per (GROUP heads, request, CHUNK columns). BLOCK_S is a power of two >= splits.

    PDL: launched while the main kernel runs (programmatic dependent launch, sm_90 and later), whose results it waits
    for; without the launch attribute there is nothing to wait for.
    """
    heads = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    head_ok = heads < HEADS
    request = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    own_sink = tl.load(sink + heads, mask=head_ok, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()

    row = request * splits * HEADS + heads
    parts, values = (), ()
    for split in tl.static_range(BLOCK_S):
        there = heads < tl.where(split < splits, HEADS, 0)
        parts = parts + (tl.load(partial_lse + row, mask=there, other=-float("inf")),)
        at = partial_out + row[:, None] * D + columns[None, :]
        values = values + (tl.load(at, mask=there[:, None], other=0.0),)
        row += HEADS
    top = parts[0]
    for split in tl.static_range(1, BLOCK_S):
        top = tl.maximum(top, parts[split])
    base = tl.where(top == -float("inf"), 0.0, top)
    total = tl.zeros([GROUP], dtype=tl.float32)
    merged = tl.zeros([GROUP, CHUNK], dtype=tl.float32)
    for split in tl.static_range(BLOCK_S):
        weight = tl.exp(parts[split] - base)
        total += weight
        merged += values[split] * weight[:, None]
    denominator = total + tl.exp(own_sink - base)
    merged *= tl.where(denominator == 0.0, 0.0, 1.0 / denominator)[:, None]

    at = request * HEADS + heads
    tl.store(out + at[:, None] * D + columns[None, :], merged.to(out.dtype.element_ty), mask=head_ok[:, None])
    tl.store(lse + at, tl.where(total == 0.0, -float("inf"), base + tl.log(total)), mask=head_ok)
