"""Sparse MLA decode for small batches, in Gluon with mma.sync: a row's columns are dealt to the warps of a CTA.

A program has a tile of 16 heads, one request and every `splits`-th tile of 16 entries of its two lists. Each of its 4
warps takes 128 of a row's 512 columns, two groups of 64, from the cache to the first product:

    fetch       16 bytes a lane and group, straight into registers, two tiles ahead
    dequantise  in registers, where the values lie as the product wants them
    s = q k^T   over the warp's own columns; the four partial sums meet in shared memory
    softmax     of the whole sum, by every warp for itself
    o += p v    rows come from shared memory once more, rows and columns exchanged

tl.dot's way to the same (mma_fp8.py) fetches by cp.async into shared memory, reads that, writes bf16 there, and has
all of it read for either product, and the queries by each warp for each tile. Columns are multiplied in an order of
their own: lane t of a row's four has columns 16 t to 16 t + 15 of a group, and the queries are laid out likewise.

All slots that a program reads lie in shared memory from the start: loaded one tile ahead of its row, as tl.dot's
kernels do, an index comes from memory no faster than a tile is done with.

What bounds 8 requests of 598 entries in fp8 (one H200, ncu, 30 Nov 2026, triton 3.6): latency. Of the kernel's 13.0 us
DRAM is busy 6 %, L2 15, shared memory and L1 40, tensor cores 10. 128 CTAs on 132 SMs are one warp a scheduler, which
issues in 33 % of its cycles; what it waits for an instruction, in cycles: 0.52 for the last instruction's result, 0.42
for memory, 0.36 for shared memory, 0.15 at barriers. (mma: 13.6 us, issues in 23 %. FlashMLA: 15.6 and its combine.)
Replayed with parts left out, when rows came one tile ahead: 12.5 us whole, 9.8 without loads, 9.5 with loads alone,
11.5 without dequantisation; the combine adds 1.7. Tried, us a call beside 13.9 to 14.8 of this kernel as it then was:
tiles of 32 entries 15.9, 8 splits 15.6, 5 splits 17.7, rows and columns exchanged by movmatrix 15.5, mma with 8 warps
16.7, wgmma with 10 splits 15.1; the next rows brought into L2 besides one tile ahead 13.85, as two ahead without.
Beside 13.8 of this one: two parties of 4 warps, each with every other tile, merged in shared memory at the end 14.4
(the kernel alone 11.5, of 12.1, but it leaves the combine no registers to be set up in meanwhile); a barrier less for
each half of a tile 13.7. With all 640 entries, beside 14.0: such tiles of 64 heads in 5 splits 15.3; a combine of
smaller or larger programs 14.2 to 14.9; in another run, parts in fp16, as those tiles leave them, 15.6.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents

from .gluon_columns_rows import fetch, halves, in_lane, on_lanes, on_rows, on_warps
from .gluon_compat import barrier, reinterpret
from .gluon_consume import LOG2E, finish
from .gluon_tiles import kept, load_length, named

ENTRIES = gl.constexpr(256)
"""Most entries of a program."""

N = gl.constexpr(16)
"""Entries of a tile."""


@gluon.jit
def bf16_pairs(x):
    """[..., 2] bf16 of [...] int32."""
    low = x.to(gl.int16).to(gl.bfloat16, bitcast=True)
    high = (x >> 16).to(gl.int16).to(gl.bfloat16, bitcast=True)
    return gl.join(low, high)


@gluon.jit
def load_queries(q, HALF: gl.constexpr, PARTIAL: gl.constexpr):
    """[4 warps, 16 heads, 64 columns] of a half, as operand of a product per warp."""
    LINES: gl.constexpr = gl.BlockedLayout([1, 1, 1, 16], [8, 1, 4, 1], [1, 4, 1, 1], [3, 2, 1, 0])
    head = on_rows(gl.arange(0, 16, layout=gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, LINES)))))
    column = HALF * 256 + on_warps(LINES) * 64 + on_lanes(LINES) * 16
    x = gl.load(q + head * 512 + column + in_lane(16, LINES))
    x = gl.permute(gl.reshape(x, [16, 4, 4, 4, 2, 2]), [1, 0, 3, 4, 2, 5])
    return gl.convert_layout(gl.reshape(x, [4, 16, 64]), gl.DotOperandLayout(0, PARTIAL, 2), assert_trivial=True)


@gluon.jit
def as_keys(half, PARTIAL: gl.constexpr):
    """A half of a tile as [4 warps, 64 columns, N]: the other operand, in the same order of columns."""
    x = gl.permute(bf16_pairs(half), [1, 3, 4, 2, 5, 0])
    return gl.convert_layout(gl.reshape(x, [4, 64, N]), gl.DotOperandLayout(1, PARTIAL, 2), assert_trivial=True)


@gluon.jit
def whole_sums(partial, memory):
    """[4, 16, N] partial sums, one of each warp, to the whole, [16, N] in every warp: 16 bytes a lane at a time."""
    FOURS: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 0, 0, 1], [0, 0, 0, 2], [0, 1, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]],
        [[0, 0, 1, 0], [0, 0, 2, 0], [0, 0, 4, 0], [0, 0, 8, 0], [0, 0, 16, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 0]],
        [],
        [4, 2, 32, 4],
    )
    x = gl.permute(gl.reshape(partial, [4, 2, 8, 2, 4, 2]), [0, 3, 2, 4, 1, 5])
    memory.store(gl.reshape(x, [4, 2, 32, 4]))
    barrier()
    x = gl.sum(memory.load(FOURS), 0)
    return gl.reshape(gl.permute(gl.reshape(x, [2, 8, 4, 2, 2]), [3, 1, 0, 2, 4]), [16, N])


@gluon.jit
def store_half(out, acc, HALF: gl.constexpr):
    """Writes [16, 256] to columns 256 HALF to 256 HALF + 255 of 16 rows."""
    L: gl.constexpr = acc.type.layout
    head = gl.expand_dims(gl.arange(0, 16, layout=gl.SliceLayout(1, L)), 1)
    column = gl.expand_dims(gl.arange(0, 256, layout=gl.SliceLayout(0, L)), 0)
    gl.store(out + head * 512 + (HALF * 256 + column), acc.to(out.dtype.element_ty))


@gluon.jit
def attend(half0, half1, valid, queries, top, total, acc0, acc1, scale_log2, sums, tiles, SCORES: gl.constexpr):
    """(top, total, acc0, acc1) after one tile: a softmax kept in base 2, and both halves of the values."""
    PARTIAL: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1, 1], [1, 16, 8])
    VALUES: gl.constexpr = acc0.type.layout
    zero = gl.full([4, 16, N], 0.0, gl.float32, PARTIAL)
    partial = mma_v2(queries[0], as_keys(half0, PARTIAL), zero)
    partial += mma_v2(queries[1], as_keys(half1, PARTIAL), zero)  # two sums that do not wait for one another
    tiles.index(0).store(gl.reshape(bf16_pairs(half0), [N, 256]))
    tiles.index(1).store(gl.reshape(bf16_pairs(half1), [N, 256]))
    scores = gl.convert_layout(whole_sums(partial, sums), SCORES, assert_trivial=True)
    scores = gl.where(gl.expand_dims(valid, 0), scores * scale_log2, -float("inf"))
    new_top = gl.maximum(top, gl.max(scores, 1))
    base = gl.where(new_top == -float("inf"), 0.0, new_top)
    p = gl.exp2(scores - gl.expand_dims(base, 1))
    rescale = gl.exp2(top - base)
    total = total * rescale + gl.sum(p, 1)
    weights = gl.convert_layout(p.to(gl.bfloat16), gl.DotOperandLayout(0, VALUES, 2), assert_trivial=True)
    rescale = gl.expand_dims(gl.convert_layout(rescale, gl.SliceLayout(1, VALUES), assert_trivial=True), 1)
    acc0 = mma_v2(weights, tiles.index(0).load(gl.DotOperandLayout(1, VALUES, 2)), acc0 * rescale)
    acc1 = mma_v2(weights, tiles.index(1).load(gl.DotOperandLayout(1, VALUES, 2)), acc1 * rescale)
    return new_top, total, acc0, acc1


@gluon.jit(do_not_specialize=["window_width", "extra_width"])
def gluon_columns_kernel(
    q,
    window_cache,
    window_indices,
    window_lengths,
    extra_cache,
    extra_indices,
    extra_lengths,
    sink,
    out,  # bf16 if there is one split, else fp32 [B, splits, H, 512], each split normalised on its own
    lse,
    scale,
    window_width,
    extra_width,
    HEADS: gl.constexpr,
    WINDOW_PAGE: gl.constexpr,  # 0: rows are bf16
    EXTRA_PAGE: gl.constexpr,
):
    """Grid (HEADS / 16, splits, requests), 4 warps; splits enough for ENTRIES entries of each list's tiles."""
    FINAL: gl.constexpr = out.dtype.element_ty == gl.bfloat16
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    WORDS: gl.constexpr = gl.BlockedLayout([1, 1, 1, 4], [8, 1, 4, 1], [1, 4, 1, 1], [3, 2, 1, 0])
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 1, 1, 4, 2], [8, 1, 4, 1, 1], [1, 4, 1, 1, 1], [4, 3, 2, 1, 0])
    ENTRY: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, WORDS)))
    PARTIAL: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1, 1], [1, 16, 8])
    VALUES: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, 4], [16, 8])
    SCORES: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [8, 0], [0, 8]], [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], [[0, 0], [0, 0]], [], [16, N]
    )
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT_HEAD: gl.constexpr = gl.SliceLayout(1, VALUES)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    COLUMN: gl.constexpr = gl.SliceLayout(0, SCORES)
    LAST: gl.constexpr = ENTRIES // N - 1
    if not FINAL:
        gdc_launch_dependents()  # the combine may be set up meanwhile; it waits for this kernel's end

    split = gl.program_id(1)
    splits = gl.num_programs(1)
    request = gl.program_id(2).to(gl.int64)
    first_head = gl.program_id(0) * 16
    caches = (window_cache, extra_cache)
    widths = (window_indices + request * window_width, window_width, extra_indices + request * extra_width, extra_width)
    window_tiles = gl.cdiv(window_width, N)
    named_slots = ()
    for k in gl.static_range(ENTRIES // 128):
        place = k * 128 + gl.arange(0, 128, layout=LINE)
        named_slots = named_slots + (named(split + place // N * splits, window_tiles, widths, place % N, N),)
    lengths = (load_length(window_lengths, request, window_width), load_length(extra_lengths, request, extra_width))
    end = window_tiles + gl.cdiv(lengths[1], N)
    q += (request * HEADS + first_head) * 512
    queries = (load_queries(q, 0, PARTIAL), load_queries(q, 1, PARTIAL))
    held = gl.allocate_shared_memory(gl.int32, [ENTRIES // 128, 128], FLAT)
    for k in gl.static_range(ENTRIES // 128):
        place = k * 128 + gl.arange(0, 128, layout=LINE)
        held.index(k).store(kept(named_slots[k], split + place // N * splits, window_tiles, lengths, place % N, N))
    barrier()
    slots_of = reinterpret(held, gl.int32, [ENTRIES // N, N], FLAT)
    raw = fetch(slots_of.index(0).load(ENTRY), split < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)
    later = fetch(slots_of.index(1).load(ENTRY), split + splits < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)

    sums = gl.allocate_shared_memory(gl.float32, [2, 4, 2, 32, 4], gl.SwizzledSharedLayout(1, 1, 1, [3, 2, 1, 0]))
    tiles = gl.allocate_shared_memory(gl.bfloat16, [2, N, 256], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    top = gl.full([16], -float("inf"), gl.float32, HEAD)
    total = gl.full([16], 0.0, gl.float32, HEAD)
    acc0 = gl.full([16, 256], 0.0, gl.float32, VALUES)
    acc1 = gl.full([16, 256], 0.0, gl.float32, VALUES)
    scale_log2 = scale * LOG2E
    i = 0
    for tile in range(split, end, splits):
        half0, half1 = halves(raw, WINDOW_PAGE != 0, PAIRS)
        raw = later
        far = slots_of.index(gl.minimum(i + 2, LAST)).load(ENTRY)
        later = fetch(far, tile + 2 * splits < window_tiles, caches, WINDOW_PAGE, EXTRA_PAGE)
        valid = slots_of.index(i).load(COLUMN) >= 0
        top, total, acc0, acc1 = attend(
            half0, half1, valid, queries, top, total, acc0, acc1, scale_log2, sums.index(i & 1), tiles, SCORES
        )
        i += 1

    sink_log2 = gl.load(sink + first_head + gl.arange(0, 16, layout=HEAD)) * LOG2E
    factor, row_lse = finish(top, total, sink_log2, FINAL)
    factor = gl.expand_dims(gl.convert_layout(factor, OUT_HEAD, assert_trivial=True), 1)
    row = (request * splits + split) * HEADS + first_head
    store_half(out + row * 512, acc0 * factor, 0)
    store_half(out + row * 512, acc1 * factor, 1)
    gl.store(lse + row + gl.arange(0, 16, layout=HEAD), row_lse)
