"""The glue of a DeepSeek-V4 layer: mHC, norms, rotation, SwiGLU and what fp8 GEMMs and caches need around them."""

from .collapse import collapse_kernel
from .entry import entry_kernel
from .expand import expand_kernel
from .op import mhc_post, mhc_post_pre_norm, mhc_pre, mhc_pre_norm
from .op_cache import kv_norm_store, qkv_norm_store
from .op_heads import q_norm_rope, rope, rope_inverse, rope_inverse_quantise
from .op_rows import quantise, swiglu, swiglu_quantise
from .out_heads import out_heads_kernel
from .project import project_kernel
from .q_heads import q_heads_kernel
from .qkv import qkv_kernel
from .quantise_rows import quantise_kernel
from .reference import mhc_post_reference, mhc_pre_reference
from .swiglu_rows import swiglu_kernel

KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        collapse_kernel,
        entry_kernel,
        expand_kernel,
        out_heads_kernel,
        project_kernel,
        q_heads_kernel,
        qkv_kernel,
        quantise_kernel,
        swiglu_kernel,
    )
}

__all__ = [
    "KERNELS",
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
    "rope",
    "rope_inverse",
    "rope_inverse_quantise",
    "swiglu",
    "swiglu_quantise",
]
