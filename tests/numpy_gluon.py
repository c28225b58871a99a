"""Gluon's operations as what they mean on whole tensors, in numpy: for kernels that Triton's interpreter does not run.

Layouts are left out: the compiler itself refuses a conversion that is said to be trivial and is not. A pointer is an
address in one array of bytes, so that every byte that a kernel reads or writes is one that was placed there. Enough of
the language for gluon_columns.py (numpy_wgmma.py has the rest); bf16 is kept as its 16 bits.
"""

import operator
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from capturebook.kernels.sparse_mla.combine import UNIT
from capturebook.kernels.sparse_mla.formats import page_stride

KINDS = {"int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "bool": np.bool_}
KINDS |= {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
DTYPES = {torch.int32: "int32", torch.uint8: "uint8", torch.float32: "float32", torch.bfloat16: "bfloat16"}
DTYPES |= {torch.float16: "float16"}


def to_bf16(values) -> np.ndarray:
    rounded = torch.from_numpy(np.ascontiguousarray(values, np.float32)).bfloat16()
    return rounded.view(torch.int16).numpy().view(np.uint16)


def from_bf16(bits) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Tensor:
    """`kind`: a name of KINDS, or "*" and the name of what it points at."""

    def __init__(self, values, kind):
        self.values, self.kind = np.asarray(values), kind

    shape = property(lambda self: list(self.values.shape))
    type = property(lambda self: SimpleNamespace(layout=None))
    dtype = property(lambda self: SimpleNamespace(element_ty=self.kind.removeprefix("*")))

    def __index__(self):
        return int(self.values)

    def __neg__(self):
        return Tensor(-self.values, self.kind)

    def to(self, kind, bitcast=False):
        if bitcast:
            return Tensor(self.values.view(KINDS[kind]), kind)
        if kind.startswith("*") or self.kind.startswith("*") or kind == self.kind:
            return Tensor(self.values, kind)
        return Tensor(to_bf16(self.values) if kind == "bfloat16" else self.values.astype(KINDS[kind]), kind)


def _binary(function, swap=False):
    def run(self, other):
        there = isinstance(other, Tensor)
        a, b = self.values, other.values if there else other
        if self.kind.startswith("*"):
            return Tensor(a + np.asarray(b, np.int64) * np.dtype(KINDS[self.kind[1:]]).itemsize, self.kind)
        kind = self.kind
        if there and np.dtype(KINDS[other.kind]).itemsize > np.dtype(KINDS[kind]).itemsize:
            kind = other.kind
        found = function(b, a) if swap else function(a, b)
        return Tensor(found, "bool") if np.asarray(found).dtype == np.bool_ else Tensor(found.astype(KINDS[kind]), kind)

    return run


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "rshift", "lshift", "lt", "ge", "eq"):
    _function = getattr(operator, _name)
    setattr(Tensor, f"__{_name.rstrip('_')}__", _binary(_function))
    if _name in ("add", "sub", "mul", "truediv"):
        setattr(Tensor, f"__r{_name}__", _binary(_function, swap=True))


class Shared:
    """Shared memory: NaN, or large numbers, before it is written."""

    def __init__(self, values, kind):
        self.values, self.kind = values, kind

    def index(self, i):
        return Shared(self.values[int(i)], self.kind)

    def store(self, tensor):
        assert self.values.shape == tensor.values.shape and self.kind == tensor.kind
        self.values[...] = tensor.values

    def load(self, layout):
        return Tensor(self.values.copy(), self.kind)


class Memory:
    """Global memory; `place(tensor)` gives its pointer, `take(pointer, like)` what lies there now."""

    def __init__(self):
        self.bytes = np.zeros(0, np.uint8)

    def place(self, tensor):
        start = -(-len(self.bytes) // 256) * 256
        self.bytes = np.concatenate(
            [self.bytes, np.zeros(start - len(self.bytes), np.uint8), tensor.contiguous().view(torch.uint8).flatten()]
        )
        return Tensor(np.int64(start), "*" + DTYPES[tensor.dtype])

    def take(self, pointer, like):
        count = like.numel() * like.element_size()
        found = self.bytes[int(pointer) : int(pointer) + count].copy()
        return torch.from_numpy(found).view(like.dtype).reshape(like.shape)

    def load(self, pointer, mask=None, other=0):
        kind = KINDS[pointer.kind[1:]]
        mask = np.True_ if mask is None else mask.values
        at, mask = np.broadcast_arrays(pointer.values, mask)
        size = np.dtype(kind).itemsize
        where = at[mask][:, None] + np.arange(size)
        assert (at[mask] % size == 0).all() and (where.size == 0 or where.max() < len(self.bytes)), "out of bounds"
        found = np.full(at.shape, other, kind)
        found[mask] = self.bytes[where].view(kind)[:, 0]
        return Tensor(found, pointer.kind[1:])

    def store(self, pointer, tensor):
        kind = KINDS[pointer.kind[1:]]
        values = tensor.to(pointer.kind[1:]).values
        at = np.broadcast_to(pointer.values, values.shape)
        where = at[..., None] + np.arange(np.dtype(kind).itemsize)
        self.bytes[where] = np.ascontiguousarray(values)[..., None].view(np.uint8)


def dequantise(assembly, constraints, inputs, dtype, is_pure, pack):
    """gluon_rows.DEQUANTISE: 4 bytes of e4m3 and a pair of bf16 scales to two pairs of bf16."""
    words, scales = np.broadcast_arrays(inputs[0].values, inputs[1].values)
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 4)
    values = torch.from_numpy(raw.copy()).view(torch.float8_e4m3fn).float().numpy()
    scale = from_bf16((scales & 0xFFFF).astype(np.uint16))[..., None]
    bits = to_bf16(values * scale).astype(np.uint32)
    return tuple(Tensor((bits[..., k] | bits[..., k + 1] << 16).view(np.int32), "int32") for k in (0, 2))


def where(condition, yes, no):
    kind = next((value.kind for value in (yes, no) if isinstance(value, Tensor)), "int32")
    yes, no = (value.values if isinstance(value, Tensor) else value for value in (yes, no))
    return Tensor(np.where(getattr(condition, "values", condition), yes, no), kind)


def _reduce(function):
    return lambda x, axis: Tensor(function(x.values, axis), x.kind)


def language(memory: Memory, place: list[int], programs: list[int]) -> SimpleNamespace:
    """`gl` for one program."""
    raw = {"float32": np.nan, "bfloat16": 0x7FC0, "int32": 0x7F7F7F7F}
    values = lambda x: x.values if isinstance(x, Tensor) else x  # noqa: E731
    found = {name: (lambda *args, **named: None) for name in ("SliceLayout", "BlockedLayout", "DotOperandLayout")}
    found |= {f"{name}Layout": found["SliceLayout"] for name in ("NVMMADistributed", "DistributedLinear")}
    return SimpleNamespace(
        **found,
        **{name: name for name in KINDS},
        SwizzledSharedLayout=found["SliceLayout"],
        constexpr=lambda x: x,
        pointer_type=lambda kind: "*" + kind,
        static_range=range,
        program_id=lambda axis: Tensor(np.int32(place[axis]), "int32"),
        num_programs=lambda axis: programs[axis],
        arange=lambda first, end, layout=None: Tensor(np.arange(first, end, dtype=np.int32), "int32"),
        full=lambda shape, value, kind, layout=None: Tensor(np.full(shape, value, KINDS[kind]), kind),
        load=memory.load,
        store=memory.store,
        where=where,
        sum=_reduce(lambda x, axis: x.sum(axis, dtype=x.dtype)),
        max=_reduce(np.max),
        maximum=lambda x, y: Tensor(np.maximum(values(x), values(y)), x.kind),
        minimum=lambda x, y: Tensor(np.minimum(values(x), values(y)), "int32"),
        cdiv=lambda x, y: -(-int(x) // int(y)),
        exp2=lambda x: Tensor(np.exp2(x.values), x.kind),
        expand_dims=lambda x, axis: Tensor(np.expand_dims(x.values, axis), x.kind),
        broadcast=lambda *both: [
            Tensor(x, y.kind) for x, y in zip(np.broadcast_arrays(*map(values, both)), both, strict=True)
        ],
        join=lambda x, y: Tensor(np.stack([x.values, y.values], -1), x.kind),
        permute=lambda x, order: Tensor(x.values.transpose(order), x.kind),
        reshape=lambda x, shape: Tensor(np.ascontiguousarray(x.values).reshape(shape), x.kind),
        convert_layout=lambda x, layout, assert_trivial: x,
        allocate_shared_memory=lambda kind, shape, layout: Shared(np.full(shape, raw[kind], KINDS[kind]), kind),
        inline_asm_elementwise=dequantise,
    )


def finish(top, total, sink_log2, final):
    """tiles.finish."""
    base = np.where(np.isneginf(top.values), 0.0, top.values)
    with np.errstate(divide="ignore", over="ignore"):  # a sink of 1e4 is infinite as a weight
        denominator = total.values + (np.exp2(sink_log2.values - base) if final else 0.0)
        factor = np.where(denominator == 0.0, 0.0, 1.0 / denominator)
        lse = np.where(total.values == 0.0, -np.inf, (base + np.log2(total.values)) * np.log(2.0))
    return Tensor(factor.astype(np.float32), "float32"), Tensor(lse.astype(np.float32), "float32")


def locate(slots, in_window, window_page, extra_page):
    """fp8_rows.locate, by division."""
    tokens = np.where(getattr(in_window, "values", in_window), window_page, extra_page)
    page, token = np.divmod(np.maximum(slots.values, 0).astype(np.int64), tokens)
    start = page * np.where(tokens == window_page, page_stride(window_page), page_stride(extra_page))
    return Tensor(start + token * 576, "int64"), Tensor(start + tokens * 576 + token * 8, "int64")


def mma(a, b, acc):
    product = np.matmul(from_bf16(a.values).astype(np.float64), from_bf16(b.values).astype(np.float64))
    return Tensor((product + acc.values).astype(np.float32), "float32")


def merged(out, lse, sink, units=None):
    """(out, lse) of [B, splits, H, 512] and [B, splits, H], bf16 or fp32, or fp16 in units [B, splits, H, 8].

    An empty split weighs nothing, whatever the sink.
    """
    if out.shape[1] == 1:
        assert units is None or units.isnan().all(), "one split has no units"
        return out[:, 0].float(), lse[:, 0]
    if units is not None:
        assert (torch.frexp(units)[0] == 0.5).all(), "powers of two"
        out = (out.float().unflatten(-1, (8, 64)) * units[..., None]).flatten(-2)
    whole = torch.logsumexp(lse, 1)
    weight = torch.exp(lse - torch.logaddexp(whole, sink)[:, None]).masked_fill(lse == -torch.inf, 0.0)
    return (out * weight[..., None]).sum(1), whole


def run_sources(names: list[str], namespace: dict) -> dict:
    """The package's modules of these names, one after another in one namespace, in place of their imports."""
    gluon = SimpleNamespace(jit=lambda function=None, **named: function or (lambda kernel: kernel))
    namespace = {"gluon": gluon, "UNIT": UNIT.value, **namespace}
    for name in names:
        path = Path(find_spec(f"capturebook.kernels.sparse_mla.{name}").origin)
        text = re.sub(r"^from [^\n]*import (\([^)]*\)|[^\n]*)\n", "", path.read_text(), flags=re.MULTILINE)
        text = re.sub(r"= gluon\.jit\(tl_(\w+)\.fn\)", r"= \1", text)  # tl's functions, which the namespace holds
        exec(compile(text, path, "exec"), namespace)
    return namespace
