"""Which kernel `decode` takes where it may choose: a rule by architecture, format and shape, from measurements."""

GLUON_BATCH = {"bf16": 32, "fp8": 16}
"""Least batch of 64 heads, by cache format, for which the Gluon kernels in tiles of 64 heads were seen to be faster.

us a call on an H200 (30 Nov 2026, triton 3.6), 600 entries, Gluon (mma) in one run: bf16 22.0 (28.4) at 32, 29.0
(38.9) at 64 and 68.3 (110.8) at 256; fp8 20.0 (21.8) at 16. Not timed, and mma's: 9 to 15 requests, in bf16 9 to 31.
128 heads count as twice the batch, which was not held against mma either.
"""


COLUMNS_BATCH, COLUMNS_ENTRIES = 8, 640
"""Most requests of 64 heads, and most entries of both lists, for which the Gluon kernel is `gluon_columns_kernel`.

us a call, in one run each: fp8 13.9 at 8 (mma 14.5, FlashMLA 15.6) and 6.7 at 1 (FlashMLA 13.9); bf16 13.0 at 8 (mma
14.4). At 16, before rows came two tiles ahead, 20.7 against 19.5 in tiles of 64 heads. What bounds it: see there.
"""


def path_of(sm: int, batch: int, heads: int, cache: str, entries: int) -> str:
    """ "gluon" or "mma".

    The Gluon kernels are for sm_90: `gluon_columns_kernel` for few requests, those in tiles of 64 heads, by wgmma, for
    many. In between `mma`, which cuts the heads into smaller tiles than wgmma, spreads over more CTAs.
    sm: 90 for compute capability 9.0; heads: of this rank; cache: one of formats.CACHES; entries: width of both lists.
    """
    if sm != 90 or heads % 64 or cache not in GLUON_BATCH:
        return "mma"
    return "gluon" if by_columns(batch, heads, entries) or batch * heads >= 64 * GLUON_BATCH[cache] else "mma"


def by_columns(batch: int, heads: int, entries: int) -> bool:
    """Whether the Gluon kernel for such a call is `gluon_columns_kernel`."""
    return heads == 64 and batch <= COLUMNS_BATCH and entries <= COLUMNS_ENTRIES
