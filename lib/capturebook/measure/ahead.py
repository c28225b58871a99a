"""Kernels of the sweep compiled side by side before the first calls, which then find them in Triton's cache.

One after another, as the calls come, they took most of a point's time: 2 to 10 s each on an H200's host.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from .peers import PEERS
from .specialise import Specialisation, specialise
from .variants import missing


def compile_ahead(points: list[dict]) -> None:
    """Compile what our variants of these points launch on this GPU, in threads.

    A point: variants, shape, heads, cache, batch and context, as the sweep's probes hold them.
    """
    import torch

    major, minor = torch.cuda.get_device_capability()
    found = {one.key(): one for point in points for one in launches(point, major * 10 + minor)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(Specialisation.store, found.values()))


def launches(point: dict, sm: int) -> Iterator[Specialisation]:
    """What our variants of a point compile on an architecture: main kernels and the combine. Nothing is allocated."""
    import triton

    from ..kernels.sparse_mla import launch
    from ..kernels.sparse_mla.combine import combine_kernel

    tensors, scale = stand_ins(point)
    for variant in point["variants"].values():
        if variant["kernel"] in PEERS or missing(variant["kernel"], point["cache"], point["heads"], sm):
            continue
        for kernel, splits, arguments, config in _mains(variant, point, tensors, scale, sm):
            yield specialise(kernel, arguments, config, sm)
            if splits > 1:
                pdl = arguments.get("PDL", "gluon" in kernel.__name__)
                results = launch.targets(tensors[0], 1)
                parts = arguments["out"], arguments["lse"]
                arguments = launch.combine_arguments(*parts, tensors[7], *results, splits, pdl, arguments.get("units"))
                options = {"launch_pdl": True} if pdl else {}
                config = triton.Config({}, num_warps=arguments["GROUP"])
                yield specialise(combine_kernel, arguments | options, config, sm)


def stand_ins(point: dict) -> tuple[tuple, float]:
    """(tensors, scale) of the point's call without memory: as `inputs.make_inputs` shapes them."""
    import torch

    from ..kernels.sparse_mla import formats, formats_v32, inputs, shapes

    lists, batch, cache = shapes.shape_of(point["shape"]).inputs(point["context"]), point["batch"], point["cache"]
    key = formats.key_width(cache)

    def empty(*shape, dtype=torch.int32):
        return torch.empty(shape, dtype=dtype, device="meta")

    def rows(page):
        if cache == "bf16":
            return empty(page, key, dtype=torch.bfloat16)
        width = formats.page_stride(page) if cache == "fp8" else formats_v32.TOKEN_BYTES
        return empty(1, width, dtype=torch.uint8)

    q = empty(batch, point["heads"], key, dtype=torch.bfloat16)
    window = (rows(inputs.WINDOW_PAGE), empty(batch, lists["window"]), empty(batch))
    extra = (rows(lists["extra_page"]), empty(batch, lists["topk"]), empty(batch))
    return (q, *window, *extra, empty(point["heads"], dtype=torch.float32)), key**-0.5


def _mains(variant: dict, point: dict, tensors: tuple, scale: float, sm: int) -> Iterator[tuple]:
    """(kernel, splits, arguments, configuration) of each main kernel that a variant may launch first."""
    from ..kernels.sparse_mla import gluon_plan, launch, paths
    from ..kernels.sparse_mla.op import tuner_of

    batch, heads, cache = point["batch"], point["heads"], point["cache"]
    widths = tensors[2].shape[1], tensors[5].shape[1]
    name = variant["kernel"]
    if name == "auto":
        name = paths.path_of(sm, batch, heads, cache, sum(widths))
    if name == "gluon":
        chosen = gluon_plan.plan(batch, heads, *widths, cache)
        arguments = chosen.arguments(tensors, chosen.results(tensors[0]), scale)
        yield chosen.kernel, chosen.splits, arguments, chosen.config
        return
    for config, entries in _configurations(variant, name, point, sm):
        splits = launch.split_count(name, batch, heads, sum(widths), entries)
        arguments = launch.main_arguments(tensors, *launch.targets(tensors[0], splits), scale, splits == 1)
        yield tuner_of(name, cache).fn, splits, arguments | launch.constants_of(name, cache, sm), config


def _configurations(variant: dict, name: str, point: dict, sm: int) -> list[tuple]:
    """(configuration, entries a split) that a variant has: its own, the pinned one, or all that a live tuning tries."""
    import triton

    from ..kernels.sparse_mla import pinned
    from ..kernels.sparse_mla.op import tuner_of

    if variant["tuning"] == "given":
        return [(triton.Config(**variant["config"]), variant["entries"])]
    if variant["tuning"] == "pinned" or variant["kernel"] == "auto":
        entry = pinned.pinned_entry(name, sm, point["heads"], point["batch"], point["cache"])
        return [(triton.Config(**entry["config"]), entry.get("entries", 0))]
    most = max(2 * point["heads"], 17)
    return [(c, 0) for c in tuner_of(name, point["cache"]).configs if c.kwargs.get("BLOCK_H", 0) < most]
