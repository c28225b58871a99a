"""Which kernel `decode` takes where it may choose: a rule by architecture, format and shape, from measurements."""

GLUON_BATCH = {"bf16": 32, "fp8": 16}
"""Least batch of 64 heads, by cache format, for which the Gluon kernel was seen to be the faster one on an H200.

us a call, 128 + 512 entries anywhere in about a GB, Gluon (mma) in one run: bf16 15.1 (15.5) at 8, 22.0 (28.4) at 32,
29.0 (38.9) at 64 and 68.3 (110.8) at 256; fp8 20.0 (21.8) at 16, and by Gluon alone 23.5 at 32, 31.8 at 64, 43.4 at 128
and 82.1 at 256. bf16 at 8 is left to mma, which took 12.7 where a batch's rows lie within 20 MB.
"""


def path_of(sm: int, batch: int, heads: int, cache: str) -> str:
    """ "gluon" or "mma".

    The Gluon kernels are for wgmma (sm_90), in tiles of 64 heads, which fewer heads would waste. Below GLUON_BATCH
    requests `mma`, which cuts the heads into smaller tiles, spreads over more CTAs.
    sm: 90 for compute capability 9.0; heads: of this rank; cache: "bf16" or "fp8".
    """
    if sm == 90 and heads % 64 == 0 and cache in GLUON_BATCH and batch * heads >= 64 * GLUON_BATCH[cache]:
        return "gluon"
    return "mma"
