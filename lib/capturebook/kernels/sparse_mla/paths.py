"""Which kernel `decode` takes where it may choose: a rule by architecture, format and shape, from measurements."""

GLUON_BATCH = {"bf16": 128, "fp8": 32}
"""Least batch of 64 heads, by cache format, for which the Gluon kernel was seen to be the faster one on an H200.

us a call, 128 + 512 entries, against FlashMLA's fp8 decode in the same run: fp8 25.4 (27.2) at 32 and 31.8 (45.5) at
64, from the sweep; 40.7 (48.2) at 128, before its loads were moved behind the fence. bf16 was timed at 128 alone: 36.3.
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
