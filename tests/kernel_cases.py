"""Calls of sparse MLA decode that every implementation is held to; used by the CPU, interpreter and GPU tests."""

from dataclasses import replace

import torch

from capturebook.kernels.sparse_mla import decode_reference, error, formats_v32
from capturebook.kernels.sparse_mla.formats import ROW_BYTES, TOKEN_BYTES, format_of, quantise
from capturebook.kernels.sparse_mla.gluon_columns import gluon_columns_kernel
from capturebook.kernels.sparse_mla.gluon_plan import WGMMA_KERNELS, Plan, plan
from capturebook.kernels.sparse_mla.inputs import EXTRA_PAGE, WINDOW_PAGE, Inputs, make_inputs
from capturebook.kernels.sparse_mla.paths import path_of
from capturebook.kernels.sparse_mla.reference import TOLERANCE, lse_error
from capturebook.kernels.sparse_mla.shapes import SHAPES

UNUSED = 2**31 - 1
"""What stands beyond a length: a slot no cache has."""


def check(inputs, got, what="", groups=(slice(None),), tolerance=TOLERANCE, lse_tolerance=1e-3):
    """Holds (out, lse) to float64; `groups`: columns of the output that are held to it each by themselves."""
    out, lse = got
    want, want_lse = decode_reference(*inputs.args())
    assert want.isfinite().all(), "the reference read a slot that no list names"
    for group in groups:
        found = error(out[:, :, group], want[:, :, group])
        assert found <= tolerance, f"{what}: {found}"
    assert lse_error(lse, want_lse) <= lse_tolerance, what


def check_edges(run, heads: int, pages: tuple, splits: int) -> None:
    """Holds `run(inputs, splits, pages)` to float64 on `edge_inputs`, in fp8 where there are pages to lay out."""
    inputs = to_fp8(edge_inputs(heads), *pages) if pages else edge_inputs(heads)
    out, lse = run(inputs, splits, pages)
    check(inputs, (out, lse), lse_tolerance=1e-4)
    assert (out[EMPTY_ROWS] == 0).all() and (lse[EMPTY_ROWS] == -torch.inf).all()
    assert (out[:, 0] == 0).all(), "a sink of +inf takes everything"


def auto_takes(inputs: Inputs, sm: int) -> str:
    """Which kernel `decode` has for kernel "auto": "mma", "columns" or "wgmma"."""
    (batch, heads, _), cache = inputs.q.shape, format_of(inputs.window_cache)
    widths = inputs.window_indices.shape[1], inputs.extra_indices.shape[1]
    if path_of(sm, batch, heads, cache, sum(widths)) == "mma":
        return "mma"
    return "columns" if plan(batch, heads, *widths, cache).kernel is gluon_columns_kernel else "wgmma"


def check_auto_takes(meant: str, inputs: Inputs) -> None:
    """Refuses a call for which "auto" has another kernel here than is meant on sm_90 (elsewhere all are mma's)."""
    major, minor = torch.cuda.get_device_capability()
    found = auto_takes(inputs, major * 10 + minor)
    assert found == (meant if (major, minor) == (9, 0) else "mma"), f"meant for {meant}, but auto takes {found}"


AUTO = [
    ("flash", 2048, {2: "columns", 12: "wgmma", 64: "wgmma"}),
    ("window", 8192, {1: "columns", 12: "wgmma", 40: "wgmma"}),
    ("hca", 8192, {1: "columns", 12: "wgmma", 40: "wgmma"}),
    ("hca", 131_072, {1: "mma", 40: "wgmma"}),
    ("pro", 8192, {1: "columns", 2: "wgmma", 40: "wgmma"}),
]
"""Name of the lists (shapes.SHAPES), context, and by batch the kernel that "auto" has for them on sm_90."""


def auto_inputs(name: str, context: int, batch: int, **more) -> Inputs:
    """A call of AUTO."""
    shape = SHAPES[name]
    return make_inputs(batch, batch, shape.heads or 64, **shape.inputs(context), **more)


def planned(kernel: str, inputs: Inputs) -> Plan:
    """How the Gluon operators launch this call: it must be with the kernel that is meant, "columns" or "wgmma"."""
    cache, widths = format_of(inputs.window_cache), (inputs.window_indices.shape[1], inputs.extra_indices.shape[1])
    found = plan(*inputs.q.shape[:2], *widths, cache)
    meant = {"columns": gluon_columns_kernel, "wgmma": WGMMA_KERNELS[cache]}[kernel]
    assert found.kernel is meant, f"meant for {kernel}; the plan for {tuple(inputs.q.shape[:2])}, {widths}: {found}"
    return found


BATCH_OF = {"columns": 4, "wgmma": 16}
"""Requests of 64 heads and lists of up to 640 entries that reach each of the Gluon kernels."""


def edge_inputs(heads: int = 8, device="cpu") -> Inputs:
    """One request for each edge, sinks at their limits, and NaN in every cache slot that no list names.

    0 both lengths 0; 1 nothing but -1; 2 a single extra token; 3 window only; 4 lengths beyond the lists; 5 negative
    lengths; 6 slots at the edges of pages and of the cache; 7 extra only, holes throughout.
    """
    base = make_inputs(7, batch=8, heads=heads, context=4096, window=40, topk=72, window_slots=512, extra_slots=512)
    window, extra = base.window_indices, base.extra_indices
    window_lengths = torch.tensor([0, 40, 0, 40, 99, -3, 12, 0], dtype=torch.int32)
    extra_lengths = torch.tensor([0, 72, 1, 0, 1000, -64, 12, 72], dtype=torch.int32)
    edges = torch.tensor([0, 63, 64, 127, 128, 255, 256, 257, 447, 448, 510, 511], dtype=torch.int32)
    window[1], extra[1] = -1, -1
    window[6, :12], extra[6, :12] = edges, edges.flip(0)
    extra[7, ::3] = -1
    for indices, lengths in ((window, window_lengths), (extra, extra_lengths)):
        beyond = torch.arange(indices.shape[1]) >= lengths[:, None]
        indices[beyond] = UNUSED
    sink = base.sink.clone()
    sink[:4] = torch.tensor([torch.inf, -torch.inf, 1e4, -1e4])
    caches = [_poison_unused(c, i) for c, i in ((base.window_cache, window), (base.extra_cache, extra))]
    made = replace(
        base,
        window_cache=caches[0],
        extra_cache=caches[1],
        window_lengths=window_lengths,
        extra_lengths=extra_lengths,
        sink=sink,
    )
    return Inputs(*(tensor.to(device) for tensor in made.tensors()), made.scale)


EMPTY_ROWS = [0, 1, 5]


def _poison_unused(cache: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    named = indices[(indices >= 0) & (indices != UNUSED)].long().unique()
    poisoned = torch.full_like(cache, torch.nan)
    poisoned[named] = cache[named]
    return poisoned


def to_fp8(inputs: Inputs, window_page: int = WINDOW_PAGE, extra_page: int = EXTRA_PAGE) -> Inputs:
    """The same call on fp8 caches, all bytes of unused slots 255: NaN as e4m3, as bf16 and as a scale."""
    caches = {}
    for name, page in (("window", window_page), ("extra", extra_page)):
        rows, indices = getattr(inputs, f"{name}_cache"), getattr(inputs, f"{name}_indices")
        cache = quantise(rows.nan_to_num(), page)
        unused = _unused(indices, len(rows)).view(-1, page)
        cache[:, : page * ROW_BYTES].unflatten(1, (page, ROW_BYTES))[unused] = 255
        cache[:, page * ROW_BYTES : page * TOKEN_BYTES].unflatten(1, (page, 8))[unused] = 255
        caches[f"{name}_cache"] = cache
    return replace(inputs, **caches)


def to_v32(inputs: Inputs) -> Inputs:
    """The same call on V3.2's caches, with a rotary part in rows and queries; all bytes of unused slots 255."""
    generator = torch.Generator().manual_seed(13)
    caches = {}
    for name in ("window", "extra"):
        rows, indices = getattr(inputs, f"{name}_cache"), getattr(inputs, f"{name}_indices")
        wide = torch.cat((rows.nan_to_num(), torch.randn(len(rows), 64, generator=generator).bfloat16()), dim=1)
        caches[f"{name}_cache"] = formats_v32.quantise(wide)
        caches[f"{name}_cache"][_unused(indices, len(rows))] = 255
    rotary = torch.randn(*inputs.q.shape[:2], 64, generator=generator).bfloat16()
    return replace(inputs, q=torch.cat((inputs.q, rotary), dim=2), scale=formats_v32.KEY**-0.5, **caches)


OF_REQUESTS = ("q", "window_indices", "window_lengths", "extra_indices", "extra_lengths")
"""What a call has of each request."""


def often(inputs: Inputs, times: int) -> Inputs:
    """Every request `times` over: the same call with so large a batch that the lists are no longer split."""
    return replace(inputs, **{name: torch.cat([getattr(inputs, name)] * times) for name in OF_REQUESTS})


def first(inputs: Inputs, requests: int) -> Inputs:
    """The call of the first requests alone."""
    return replace(inputs, **{name: getattr(inputs, name)[:requests] for name in OF_REQUESTS})


def on_gpu(inputs: Inputs) -> Inputs:
    return Inputs(*(tensor.cuda() for tensor in inputs.tensors()), inputs.scale)


def _unused(indices: torch.Tensor, slots: int) -> torch.Tensor:
    unused = torch.ones(slots, dtype=torch.bool, device=indices.device)
    unused[indices[(indices >= 0) & (indices != UNUSED)].long()] = False
    return unused


LEAST_GROUP, LARGEST_GROUP = slice(0, 64), slice(192, 256)
"""Values of a row whose scale is the least and the largest in `scale_end_inputs`."""


SCALE_ENDS = {"groups": (LEAST_GROUP, LARGEST_GROUP, slice(448, 512)), "tolerance": 2**-8}
"""How `check` holds that call: 64 values of 30 tokens, not 512 of 640, average little out of what is rounded.

bf16 rounds weights and output by 2^-8 each at most, and most of them by far less.
"""


def scale_end_inputs(heads: int = 8, device="cpu") -> Inputs:
    """Rows with one group at 2 ** -127 (scale byte 0) and one near bf16's end (byte 254); all their products count.

    The queries are as large as the rows are small, so that both groups weigh in the scores. fp16 holds neither group.
    The values of the large one are small ones of e4m3 and those of the least are large ones, since sums over 32 tokens
    and their mean must stay within fp32's normal numbers.
    """
    base = make_inputs(11, batch=3, heads=heads, context=64, window=16, topk=16, window_slots=256, extra_slots=64)
    q = base.q.clone()
    q[:, :, LEAST_GROUP] = (q[:, :, LEAST_GROUP].double() * 2.0**120).to(q.dtype)
    q[:, :, LARGEST_GROUP] = (q[:, :, LARGEST_GROUP].double() * 2.0**-120).to(q.dtype)
    q[q.abs() < 2.0**-126] = 0.0  # subnormals in bf16, which Triton's interpreter reads wrongly
    made = to_fp8(replace(base, q=q))
    generator = torch.Generator().manual_seed(12)
    for cache, page in ((made.window_cache, WINDOW_PAGE), (made.extra_cache, EXTRA_PAGE)):
        data = cache[:, : page * ROW_BYTES].unflatten(1, (page, ROW_BYTES))
        scales = cache[:, page * ROW_BYTES : page * TOKEN_BYTES].unflatten(1, (page, 8))
        sign = torch.randint(0, 2, (2, *data.shape[:2], 64), generator=generator, dtype=torch.uint8) << 7
        large = torch.randint(0x60, 0x7F, sign.shape[1:], generator=generator, dtype=torch.uint8)  # 32 to 448
        small = torch.randint(0x01, 0x10, sign.shape[1:], generator=generator, dtype=torch.uint8)  # 2^-9 to 2^-5
        data[:, :, LEAST_GROUP], data[:, :, LARGEST_GROUP] = sign[0] | large, sign[1] | small
        scales[:, :, 0], scales[:, :, 3] = 0, 254
    return Inputs(*(tensor.to(device) for tensor in made.tensors()), made.scale)


def replays(call, static: Inputs, fresh: list[Inputs]):
    """Captures `call(*static.tensors())` once, on a GPU, and yields (inputs, outputs) of a replay for each of `fresh`.

    Two warm-up calls before; the inputs are copied into the static ones, the outputs poisoned before each replay.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call(*static.tensors())
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            outputs = call(*static.tensors())
    torch.cuda.synchronize()
    for inputs in fresh:
        for target, source in zip(static.tensors(), inputs.tensors()):
            target.copy_(source)
        for output in outputs:
            output.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        yield inputs, outputs
