"""What differs between the Gluon of triton 3.6 and that of 3.9. Kernels take these names from here."""

from triton.experimental.gluon import language as gl

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Synchronises the warps of a partition (of the CTA outside of one): 3.6 has `thread_barrier` only, 3.9 `barrier`."""

_descriptor = gl.shared_memory_descriptor
reinterpret = _descriptor.reinterpret if hasattr(_descriptor, "reinterpret") else _descriptor._reinterpret
"""reinterpret(memory, dtype, shape, layout): another view of shared memory; private in 3.6."""
