"""Which kernel `decode` takes where it may choose: a rule by architecture, format and shape, from measurements."""

GLUON_FORMATS = ("bf16", "fp8")
"""Cache formats that the Gluon kernels read."""

COLUMNS = {64: (8, 640), 128: (1, 1152)}
"""By heads: most requests, and most entries of both lists, for which the Gluon kernel is `gluon_columns_kernel`.

us a call on an H200 (30 Nov 2026, triton 3.6), all entries, beside tiles of 64 heads / mma / FlashMLA, in one run each
but for mma up to 8 requests, which other runs of the day timed, at 1 and 8 with 15/16 of the entries:
64 heads, fp8: 6.7 at 1 request (- / 6.9 / 13.8), 14.0 at 8 (15.3 / 14.5 / 15.6), 17.1 at 9 (15.7 / 18.6 / 16.9); bf16:
13.2 at 8 (14.0 / 14.2 / -). 128 heads, fp8: 9.8 at 1 (14.7 / 13.9 / 15.1), 15.5 at 2 (15.2 / 22.5 / 15.8). What bounds
it: see there.
"""

TILES_BATCH = {64: 9, 128: 2}
"""By heads: least batch for which the Gluon kernels in tiles of 64 heads, by wgmma, are taken, however long the lists.

As above, tiles / mma: 64 heads, fp8 15.7 / 18.6 at 9, 16.5 / 18.7 at 12 and 17.3 / 20.7 at 16; bf16 14.4 / 14.6 at 9,
15.3 / 15.9 at 12, 16.2 / 24.1 at 16 and 17.9 / 23.2 at 24. 128 heads: fp8 16.7 / 38.4 at 4, bf16 13.9 / 21.3 at 2.
Fewer requests with longer lists than COLUMNS has were not timed, and are mma's.
"""


def path_of(sm: int, batch: int, heads: int, cache: str, entries: int) -> str:
    """ "gluon" or "mma".

    The Gluon kernels are for sm_90: `gluon_columns_kernel` for few requests, those in tiles of 64 heads for more.
    sm: 90 for compute capability 9.0; heads: of this rank; cache: one of formats.CACHES; entries: width of both lists.
    """
    if sm != 90 or heads % 64 or cache not in GLUON_FORMATS:
        return "mma"
    return "gluon" if by_columns(batch, heads, entries) or batch >= TILES_BATCH[min(heads, 128)] else "mma"


def by_columns(batch: int, heads: int, entries: int) -> bool:
    """Whether the Gluon kernel for such a call is `gluon_columns_kernel`."""
    most_batch, most_entries = COLUMNS.get(heads, (0, 0))
    return batch <= most_batch and entries <= most_entries
