"""Registers, stack and spills of a compiled kernel, in ptxas's words and in the driver's.

Three figures that are easily mixed up, all in bytes per thread:
- stack: the frame in local memory (ptxas "stack frame", cuobjdump STACK, the driver's LOCAL_SIZE_BYTES);
- spill stores, spill loads: what ptxas's instructions move to and from that frame (static count times width).
Triton's `CompiledKernel.n_spills` is LOCAL_SIZE_BYTES / 4, so it is the stack in words and no spill count.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from typing import Any

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Usage:
    """Per thread: 32-bit registers, and bytes of stack, spill stores and spill loads."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def spills(self) -> int:
        """ptxas spill bytes: stores plus loads."""
        return self.spill_stores + self.spill_loads


def from_ptxas_log(log: str) -> Usage:
    """Usage from the output of `ptxas -v` for one kernel. Raises ValueError if it does not hold exactly one.

    The functions that a kernel calls without inlining have their own "Function properties": their stacks add up in
    the frame that the driver reserves, so such a log is refused and not summed.
    """
    spills, registers = _SPILLS.findall(log), _REGISTERS.findall(log)
    if len(spills) != 1 or len(registers) != 1:
        raise ValueError(f"ptxas log: {len(spills)} stack lines and {len(registers)} register lines; expected one each")
    stack, stores, loads = map(int, spills[0])
    return Usage(int(registers[0]), stack, stores, loads)


def loaded(kernel: Any) -> dict[str, int]:
    """What the driver and ptxas say of a Triton CompiledKernel that is loaded on this GPU (loads it if it is not).

    `registers`, `stack` (bytes) from the driver; `shared` (bytes) as launched; `spills` (bytes) from `ptxas -v` on
    the very PTX of that kernel, since the driver does not tell spills.
    """
    kernel._init_handles()
    return {
        "registers": kernel.n_regs,
        "stack": kernel.n_spills * 4,
        "spills": _ptxas_again(kernel).spills,
        "shared": kernel.metadata.shared,
    }


def _ptxas_again(kernel: Any) -> Usage:
    from triton.compiler.compiler import make_backend

    backend = make_backend(kernel.metadata.target)
    options = backend.parse_options({k: v for k, v in kernel.metadata._asdict().items() if v is not None})
    with ptxas_log() as log:
        backend.make_cubin(kernel.asm["ptx"], {}, options, kernel.metadata.target.arch)
    return from_ptxas_log(log.getvalue())


@contextlib.contextmanager
def ptxas_log():
    """Collects what ptxas says while Triton compiles inside the block (Triton always passes -v)."""
    from triton import knobs

    text = io.StringIO()
    with knobs.nvidia.scope(), contextlib.redirect_stdout(text):
        knobs.nvidia.dump_ptxas_log = True
        yield text
