"""Partial results in fp16: half the bytes that splits write and the combine reads.

Each 64 columns of a row, which share a scale in the cache, are in units of a power of two of their own. A value is off
by 2 ** -11 of the largest of them at most, where the kernels' own weights, in bf16, are off by 2 ** -8.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .combine import UNIT


@gluon.jit
def in_units(rows):
    """(units [n, columns / 64], rows [n, columns] in them) of fp32 rows.

    Units and their inverses are normal numbers; zeros have the least. The rows are fp16, in the dtype of the shared
    memory that they pass through.
    """
    parts = gl.reshape(rows, [rows.shape[0], rows.shape[1] // UNIT, UNIT])
    size = gl.max(gl.maximum(parts, -parts), 2)
    bits = size.to(gl.int32, bitcast=True) & 0x7F800000
    bits = gl.minimum(gl.maximum(bits, 0x00800000), 0x7E800000)
    inverse = (0x7F000000 - bits).to(gl.float32, bitcast=True)
    halves = gl.reshape(parts * gl.expand_dims(inverse, 2), rows.shape).to(gl.float16)
    return bits.to(gl.float32, bitcast=True), halves.to(gl.bfloat16, bitcast=True)


@gluon.jit
def store_units(units, values, width):
    """Writes [n, m] to n rows of `width`."""
    L: gl.constexpr = values.type.layout
    row = gl.expand_dims(gl.arange(0, values.shape[0], layout=gl.SliceLayout(1, L)), 1)
    group = gl.expand_dims(gl.arange(0, values.shape[1], layout=gl.SliceLayout(0, L)), 0)
    gl.store(units + row * width + group, values)
