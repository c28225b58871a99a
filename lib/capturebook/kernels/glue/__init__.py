"""The glue of a DeepSeek-V4 layer: so far mHC, the residual stream's four copies mixed before and after a sublayer."""

from .op import mhc_post, mhc_pre
from .reference import mhc_post_reference, mhc_pre_reference

__all__ = ["mhc_post", "mhc_post_reference", "mhc_pre", "mhc_pre_reference"]
