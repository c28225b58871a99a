"""What differs between the Gluon of triton 3.6 and that of 3.9. Kernels take these names from here."""

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Synchronises the warps of a partition (of the CTA outside of one): 3.6 has `thread_barrier` only, 3.9 `barrier`."""

_descriptor = gl.shared_memory_descriptor
reinterpret = _descriptor.reinterpret if hasattr(_descriptor, "reinterpret") else _descriptor._reinterpret
"""reinterpret(memory, dtype, shape, layout): another view of shared memory; private in 3.6."""

async_load = async_copy.async_load if hasattr(async_copy, "async_load") else async_copy.async_copy_global_to_shared
"""async_load(memory, pointers, mask=None): cp.async, zeros where the mask is false; another name in 3.6."""
