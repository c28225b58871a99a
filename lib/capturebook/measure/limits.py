"""What one streaming multiprocessor has, by compute capability.

Source: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"; allocation granularities
from cuda_occupancy.h, which Triton ships (a test compares occupancy with that header, compiled).
"""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Limits of one SM and one CTA (thread block). Shared memory in bytes, tensor memory in columns of 32 bits."""

    sm: int
    shared_per_cta: int  # opt-in maximum of dynamic shared memory
    shared_per_sm: int
    warps_per_sm: int
    ctas_per_sm: int
    tensor_columns: int = 0  # Blackwell data-center parts: tensor memory per SM
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_cta: int = 1024
    warp_size: int = 32
    shared_reserved: int = 1024  # taken by the system from each CTA, compute capability 8.0 and later
    shared_unit: int = 128
    register_unit: int = 256  # allocated per warp
    partitions: int = 4  # registers are split evenly between the SM's sub-partitions

    @property
    def name(self) -> str:
        return f"sm_{self.sm}"


TABLE = {
    limits.sm: limits
    for limits in (
        Limits(80, 163 * KIB, 164 * KIB, warps_per_sm=64, ctas_per_sm=32),
        Limits(86, 99 * KIB, 100 * KIB, warps_per_sm=48, ctas_per_sm=16),
        Limits(89, 99 * KIB, 100 * KIB, warps_per_sm=48, ctas_per_sm=24),
        Limits(90, 227 * KIB, 228 * KIB, warps_per_sm=64, ctas_per_sm=32),
        Limits(100, 227 * KIB, 228 * KIB, warps_per_sm=64, ctas_per_sm=32, tensor_columns=512),
        Limits(120, 99 * KIB, 100 * KIB, warps_per_sm=48, ctas_per_sm=24),
    )
}


def parse_target(text: str | int) -> int:
    """`sm_90`, `sm_90a`, `90` or 90 -> 90. Raises ValueError, one line, naming what was given and what is allowed."""
    digits = str(text).strip().lower().removeprefix("sm_").removesuffix("a")
    if not digits.isdecimal() or int(digits) not in TABLE:
        allowed = ", ".join(limits.name for limits in TABLE.values())
        raise ValueError(f"targets: {text!r} is not a target; allowed: {allowed}")
    return int(digits)


def parse_targets(text: str | list | tuple) -> list[int]:
    """A comma-separated text or a list of targets -> compute capabilities, in order and without repeats."""
    parts = text.split(",") if isinstance(text, str) else text
    targets = list(dict.fromkeys(parse_target(part) for part in parts if str(part).strip()))
    if not targets:
        allowed = ", ".join(limits.name for limits in TABLE.values())
        raise ValueError(f"targets: {text!r} names none; allowed: {allowed}")
    return targets
