"""Which kernel `decode` takes where it may choose: a rule by architecture, format and shape, from measurements."""

GLUON_BATCH = {"bf16": 32, "fp8": 16}
"""Least batch of 64 heads, by cache format, for which the Gluon kernel was seen to be the faster one on an H200.

us a call, 128 + 512 entries anywhere in about a GB, Gluon (mma) in one run: bf16 15.1 (15.5) at 8, 22.0 (28.4) at 32,
29.0 (38.9) at 64 and 68.3 (110.8) at 256; fp8 20.0 (21.8) at 16, and by Gluon alone 23.5 at 32, 31.8 at 64, 43.4 at 128
and 82.1 at 256. bf16 at 8 is left to mma, which took 12.7 where a batch's rows lie within 20 MB.
"""


COLUMNS_BATCH, COLUMNS_ENTRIES = 8, 640
"""Most requests of 64 heads, and most entries of both lists, for which the Gluon kernel is `gluon_columns_kernel`.

With rows one tile ahead: fp8 14.2 us at 8 (mma 14.5, FlashMLA 15.6), 6.9 (6.9, 13.7) at 1; bf16 13.5 (14.4) at 8. Its
time at 8 without loads is 9.8 of 12.5 us, of loads alone 9.5: so they come two tiles ahead now.
"""


def path_of(sm: int, batch: int, heads: int, cache: str, entries: int) -> str:
    """ "gluon" or "mma".

    The Gluon kernels are for sm_90: `gluon_columns_kernel` for few requests, those in tiles of 64 heads, by wgmma, for
    many. In between `mma`, which cuts the heads into smaller tiles than wgmma, spreads over more CTAs.
    sm: 90 for compute capability 9.0; heads: of this rank; cache: "bf16" or "fp8"; entries: width of both lists.
    """
    if sm != 90 or heads % 64 or cache not in GLUON_BATCH:
        return "mma"
    return "gluon" if by_columns(batch, heads, entries) or batch * heads >= 64 * GLUON_BATCH[cache] else "mma"


def by_columns(batch: int, heads: int, entries: int) -> bool:
    """Whether the Gluon kernel for such a call is `gluon_columns_kernel`."""
    return heads == 64 and batch <= COLUMNS_BATCH and entries <= COLUMNS_ENTRIES
