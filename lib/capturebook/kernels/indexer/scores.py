"""Indexer scores on tensor cores: the stock kernel, over the padded width, and the one bounded by device lengths."""

import triton
import triton.language as tl

from ..glue.tiles import wait_for_previous
from ..sparse_mla.tiles import load_length

PADDED_CONFIGS = [triton.Config({}, num_warps=warps, num_stages=1) for warps in (4, 8)]

BOUNDED_CONFIGS = [
    triton.Config({"PROGRAMS": programs, "TURN": turn}, num_warps=4, num_stages=stages)
    for programs, turn, stages in ((264, 0, 5), (396, 0, 3), (396, 2, 3), (528, 2, 2), (528, 0, 3), (1056, 0, 2))
]
"""PROGRAMS: CTAs in the fixed grid; the counts are 2 to 8 for each of an H200's 132 SMs. TURN: how many pages the turn
to another request counts for, at most: it empties the pipeline."""

NEAR = tl.constexpr(128)
"""Entries of the page table that a run reads at once when it comes to a request: later ones of them are in L1."""


@triton.jit
def load_query(q, weights, row, HEADS: tl.constexpr, D: tl.constexpr, FP8: tl.constexpr, DOT_FP32: tl.constexpr):
    """One request's query [HEADS, D], in the dtype that keys are multiplied in, and weights [HEADS]."""
    heads = tl.arange(0, HEADS)
    tile = tl.load(q + (row * HEADS + heads)[:, None] * D + tl.arange(0, D)[None, :])
    if DOT_FP32:
        tile = tile.to(tl.float32)
    elif FP8:
        tile = tile.to(tl.float16)
    return tile, tl.load(weights + row * HEADS + heads)


@triton.jit
def from_e4m3(raw, E4M3: tl.constexpr):
    """fp16 of e4m3 bytes, exact. E4M3: the hardware has the conversion (sm_89 and later).

    Without it sign, exponent and digits are moved to their places, which gives the value times 2 ** -8: an exponent
    counts from 15 there and not from 7.
    """
    if E4M3:
        return raw.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    wide = raw.to(tl.uint16)
    return (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)


@triton.jit
def score_page(
    query,
    weight,
    keys,
    page,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    DOT_FP32: tl.constexpr,
):
    """[PAGE] fp32 scores of all keys of one page, those beyond a length included: a key's score is its own affair."""
    place, columns = tl.arange(0, PAGE), tl.arange(0, D)
    if FP8:
        start = keys + page.to(tl.int64) * (PAGE * (D + 4))
        tile = from_e4m3(tl.load(start + place[:, None] * D + columns[None, :]), E4M3)
        scale = tl.load((start + PAGE * D).to(tl.pointer_type(tl.float32)) + place)
        if not E4M3:
            scale *= 256.0
    else:
        tile = tl.load(keys + (page.to(tl.int64) * PAGE + place)[:, None] * D + columns[None, :])
    if DOT_FP32:
        tile = tile.to(tl.float32)
    products = tl.maximum(tl.dot(tile, query.T, input_precision="ieee"), 0.0)
    score = tl.sum(products * weight[None, :], 1)
    if FP8:  # a scale is positive, so it goes through relu
        score *= scale
    return score


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.autotune(configs=PADDED_CONFIGS, key=["batch_bucket", "table_width"])
@triton.jit(do_not_specialize=["batch_bucket"])
def padded_scores_kernel(
    q,  # [B, HEADS, D] bf16
    weights,  # [B, HEADS] fp32
    keys,  # [pages, PAGE, D] bf16; FP8: [pages, PAGE * (D + 4)] bytes, see formats.py
    page_table,  # [B, table_width] int32
    lengths,  # [B] int32
    scores,  # [B, table_width * PAGE] fp32; -inf beyond the length
    table_width,
    batch_bucket,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    DOT_FP32: tl.constexpr,  # operands of tl.dot in fp32, for Triton's interpreter only
):
    """One program per page of the padded width and request: the work follows the maximum context."""
    column = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    length = load_length(lengths, row, table_width * PAGE)
    query, weight = load_query(q, weights, row, HEADS, D, FP8, DOT_FP32)
    page = tl.load(page_table + row * table_width + column)
    found = score_page(query, weight, keys, page, PAGE, D, FP8, E4M3, DOT_FP32)
    position = column * PAGE + tl.arange(0, PAGE)
    tl.store(scores + row * table_width * PAGE + position, tl.where(position < length, found, -float("inf")))


@triton.autotune(configs=BOUNDED_CONFIGS, key=["batch_bucket"])
@triton.jit(do_not_specialize=["batch", "batch_bucket"])
def bounded_scores_kernel(
    q,
    weights,
    keys,
    page_table,
    lengths,
    scores,  # as above, but nothing is written beyond the length
    batch,
    table_width,
    batch_bucket,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    FP8: tl.constexpr,
    E4M3: tl.constexpr,
    DOT_FP32: tl.constexpr,
    PDL: tl.constexpr,
    ROWS: tl.constexpr,  # a power of two >= batch
    PROGRAMS: tl.constexpr,
    TURN: tl.constexpr,
):
    """PROGRAMS programs share the pages of all requests evenly, whatever the lengths: the work follows their sum.

    The pages of all requests, laid end to end, are cut into runs of equal size, or one more; a run may span several
    requests. In front of a request's pages lie as many that are none as the turn to it costs, unless runs are short.
    """
    wait_for_previous(PDL)
    rows = tl.arange(0, ROWS)
    found = tl.load(lengths + rows, mask=rows < batch, other=0)
    tiles = tl.cdiv(tl.maximum(tl.minimum(found, table_width * PAGE), 0), PAGE)
    total = tl.sum(tiles, 0)
    turn = tl.minimum(total // (8 * PROGRAMS), TURN)
    if TURN > 0:
        tiles = tl.where(tiles > 0, tiles + turn, 0)
        total = tl.sum(tiles, 0)
    share, rest = total // PROGRAMS, total % PROGRAMS
    first = tl.program_id(0) * share + tl.minimum(tl.program_id(0), rest)
    last = first + share + tl.where(tl.program_id(0) < rest, 1, 0)
    # The rows that end at or before `first`: how many they are, and where the next one starts.
    passed = (tl.cumsum(tiles, 0) <= first).to(tl.int32)
    row, start = tl.reduce((passed, passed * tiles), 0, add_both)
    row = row.to(tl.int64)
    while start < last:
        table = page_table + row * table_width
        column = tl.maximum(tl.maximum(first, start) - start - turn, 0)
        # In front of all that waits for memory; where the request ends is not known yet.
        near = column + tl.arange(0, NEAR)
        numbers = tl.load(table + near, mask=near < tl.minimum(table_width, last - start), other=0)
        query, weight = load_query(q, weights, row, HEADS, D, FP8, DOT_FP32)
        length = load_length(lengths, row, table_width * PAGE)
        pages = tl.cdiv(length, PAGE)
        end = start + tl.where(pages > 0, pages + turn, 0)
        line = scores + row * table_width * PAGE
        stop = tl.minimum(last, end) - start - turn
        # The next page's number travels as a loop variable: loaded where it is used, it would take a stage of the
        # pipeline from the keys it points at.
        page = tl.sum(tl.where(near == column, numbers, 0), 0)
        for at in tl.range(column, stop):
            this = page
            page = tl.load(table + at + 1, mask=at + 1 < stop, other=0)
            value = score_page(query, weight, keys, this, PAGE, D, FP8, E4M3, DOT_FP32)
            position = at * PAGE + tl.arange(0, PAGE)
            tl.store(line + position, value, mask=position < length)
        start = end
        row += 1
