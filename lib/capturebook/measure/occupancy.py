"""Theoretical occupancy: how many CTAs of a kernel one SM can hold, and what limits them."""

from dataclasses import dataclass

from .limits import Limits


@dataclass(frozen=True)
class Occupancy:
    """`ctas` per SM, `share` = resident warps over the SM's warp slots (0 to 1), `limiter` = what runs out first."""

    ctas: int
    share: float
    limiter: str


def occupancy(limits: Limits, registers: int, shared: int, warps: int, tensor_columns: int = 0) -> Occupancy:
    """Occupancy of a kernel with `registers` per thread, `shared` bytes and `warps` per CTA.

    The rules are those of NVIDIA's calculator (cuda_occupancy.h): registers are given to warps in units of 256 and
    from four sub-partitions apart, shared memory in units of 128 B plus 1 KiB reserved per CTA. Named barriers are
    left out: Triton's kernels use few. `tensor_columns` is tensor memory allocated per CTA (sm_100).
    """
    by = {
        "warps": limits.warps_per_sm // warps if warps * limits.warp_size <= limits.threads_per_cta else 0,
        "ctas": limits.ctas_per_sm,
        "registers": _by_registers(limits, registers, warps),
        "shared": _by_shared(limits, shared),
    }
    if tensor_columns:
        by["tensor memory"] = limits.tensor_columns // tensor_columns
    limiter = min(by, key=by.get)
    return Occupancy(by[limiter], by[limiter] * warps / limits.warps_per_sm, limiter)


def _by_registers(limits: Limits, registers: int, warps: int) -> int:
    if registers > limits.registers_per_thread:
        return 0
    per_warp = _round_up(registers * limits.warp_size, limits.register_unit)
    if per_warp == 0:
        return limits.ctas_per_sm
    if per_warp * _round_up(warps, limits.partitions) > limits.registers_per_sm:
        return 0
    warps_per_partition = limits.registers_per_sm // limits.partitions // per_warp
    return warps_per_partition * limits.partitions // warps


def _by_shared(limits: Limits, shared: int) -> int:
    if shared > limits.shared_per_cta:
        return 0
    return limits.shared_per_sm // _round_up(shared + limits.shared_reserved, limits.shared_unit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
