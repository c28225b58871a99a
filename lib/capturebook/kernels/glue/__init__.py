"""The glue of a DeepSeek-V4 layer: mHC, norms, rotation, SwiGLU and what fp8 GEMMs and caches need around them."""

from .op import mhc_post, mhc_post_pre_norm, mhc_pre, mhc_pre_norm
from .op_cache import kv_norm_store, qkv_norm_store
from .op_rows import q_norm_rope, quantise, rope_inverse_quantise, swiglu_quantise
from .reference import mhc_post_reference, mhc_pre_reference

__all__ = [
    "kv_norm_store",
    "mhc_post",
    "mhc_post_pre_norm",
    "mhc_post_reference",
    "mhc_pre",
    "mhc_pre_norm",
    "mhc_pre_reference",
    "q_norm_rope",
    "qkv_norm_store",
    "quantise",
    "rope_inverse_quantise",
    "swiglu_quantise",
]
