"""The least time that bytes and FLOPs allow on a GPU, and a job that measures its two rates."""

from typing import Any

from ..probes import Probe
from .gpu_processes import foreign_processes, refusal
from .timing import spread, time_variants

MEASURED = "measured in this run: x + 1 read and written, bf16 matmul"
"""The label of floors that come from `run`; a preset's own figures carry the preset's."""


def floor_us(bytes_moved: float, flops: float, tb_s: float, tflops: float) -> float:
    """max(bytes / bandwidth, FLOPs / rate) in us: the roofline bound of one call, launch cost not in it.

    tb_s in 1e12 bytes per second, tflops in 1e12 FLOP per second. Raises ValueError for a rate that is not positive.
    """
    for name, rate in (("tb_s", tb_s), ("tflops", tflops)):
        if not rate > 0:
            raise ValueError(f"{name}: {rate!r}; allowed: a number above 0")
    return max(bytes_moved / tb_s, flops / tflops) * 1e-6


def bound(bytes_moved: float, flops: float, tb_s: float, tflops: float) -> str:
    """Which of the two makes the floor: "bytes" or "flops"."""
    return "bytes" if bytes_moved / tb_s >= flops / tflops else "flops"


def floor_of(bytes_moved: float, flops: float, rates: dict) -> dict:
    """A call's floor_us, floor_bound and floor_source, as payloads hold them; None each where there are no rates.

    rates: {"tb_s", "tflops", "source"} or {}, see `sweep.rates`.
    """
    if not rates:
        return {"floor_us": None, "floor_bound": None, "floor_source": None}
    reached = rates["tb_s"], rates["tflops"]
    return {
        "floor_us": floor_us(bytes_moved, flops, *reached),
        "floor_bound": bound(bytes_moved, flops, *reached),
        "floor_source": rates["source"],
    }


def plan_floors(params: Any) -> list[Probe]:
    """The probe that measures both rates, or none when the parameters give both."""
    if params.dram_tb_s and params.tensor_tflops:
        return []
    return [
        Probe(
            kind="floor",
            job="capturebook.measure.floors:run",
            args={"gigabytes": 4.0, "size": 8192, "samples": 15},
            exclusive=True,
            deadline=max(params.deadline, 60.0),
            label="copy and matmul rates",
        )
    ]


def run(ctx) -> dict:
    """Job: copy bandwidth and bf16 matmul rate of this GPU. Samples in us per call, rates from their medians.

    args: gigabytes (of x, read once and written once; bounded by a quarter of free memory), size (of the square
    matrices), samples. The copy is a kernel, x + 1: a `copy_` captured in a graph becomes a memcpy node, which reached
    only 2.7 of 4.3 TB/s on an H200.
    """
    import torch

    ctx.stage("build")
    found = foreign_processes()
    if found:
        return refusal(found)
    free, _ = torch.cuda.mem_get_info()
    elements = int(min(ctx.args["gigabytes"] * 1e9, free / 4) // 4)
    x, y = torch.zeros(2, elements, device="cuda").unbind()
    size = ctx.args["size"]
    a, b, c = torch.randn(3, size, size, device="cuda", dtype=torch.bfloat16).unbind()
    ctx.stage("time")
    samples = time_variants(
        {"copy": [lambda: torch.add(x, 1.0, out=y)], "matmul": [lambda: torch.mm(a, b, out=c)]}, ctx.args["samples"]
    )
    found = foreign_processes()
    if found:
        return refusal(found)
    copy_us, matmul_us = (spread(samples[name])["median_us"] for name in ("copy", "matmul"))
    payload = {
        "tb_s": rate(2 * 4 * elements, copy_us),
        "tflops": rate(2 * size**3, matmul_us),
        "source": MEASURED,
        "copy_bytes": 8 * elements,
        "matmul_size": size,
        "device": torch.cuda.get_device_name(),
    }
    return {"status": "pass", "payload": payload, "samples": samples}


def rate(amount: float, us: float) -> float:
    """`amount` (bytes or FLOPs) in `us` microseconds, as 1e12 per second."""
    return amount / us * 1e-6
