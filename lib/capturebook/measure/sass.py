"""Reading machine code: which instructions a cubin holds, by the disassembler that Triton ships."""

import collections
import re
import subprocess
import tempfile
from pathlib import Path

FAMILIES = {
    "HMMA": r"HMMA\.",  # mma.sync, 16-bit and tf32
    "QMMA": r"QMMA\.",  # mma.sync, 8-bit floats (sm_89, sm_120)
    "OMMA": r"OMMA\.",  # mma.sync, 4-bit floats (sm_120)
    "IMMA": r"IMMA\.",
    "DMMA": r"DMMA\.",
    "HGMMA": r"HGMMA\.",  # wgmma (sm_90)
    "QGMMA": r"QGMMA\.",
    "IGMMA": r"IGMMA\.",
    "UTCMMA": r"UTC[A-Z]*MMA",  # tcgen05.mma (sm_100)
    "LDGSTS": r"LDGSTS\b",  # cp.async
    "UTMALDG": r"UTMALDG\b",  # TMA load
    "UTMASTG": r"UTMASTG\b",
    "UBLKCP": r"UBLKCP\b",  # bulk copy without a tensor map
    "LDL": r"LDL\b",  # from local memory: spills and arrays
    "STL": r"STL\b",
}
"""Instruction family -> pattern at the start of a SASS opcode."""

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Za-z0-9_.]*)", re.MULTILINE)


def disassemble(cubin: bytes) -> str:
    """SASS text of a cubin. Raises RuntimeError with the tool's own words if it fails."""
    return _cuobjdump(cubin, "-sass")


def count(sass: str) -> dict[str, int]:
    """How often each family of FAMILIES occurs in the code (static count), those with none left out; `total` too."""
    opcodes = collections.Counter(_INSTRUCTION.findall(sass))
    counts = {
        family: sum(n for opcode, n in opcodes.items() if re.match(pattern, opcode))
        for family, pattern in FAMILIES.items()
    }
    return {family: n for family, n in counts.items() if n} | {"total": opcodes.total()}


def frame_and_registers(cubin: bytes) -> dict[str, int]:
    """{"registers": per thread, "stack": bytes per thread} as the cubin itself declares them."""
    text = _cuobjdump(cubin, "--dump-resource-usage")
    found = re.findall(r"REG:(\d+) STACK:(\d+)", text)
    if len(found) != 1:
        raise RuntimeError(f"cuobjdump: {len(found)} kernels in the cubin; expected one")
    return {"registers": int(found[0][0]), "stack": int(found[0][1])}


def _cuobjdump(cubin: bytes, option: str) -> str:
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run([knobs.nvidia.cuobjdump.path, option, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"cuobjdump {option} ended with {done.returncode}: {done.stderr.strip()[:500]}")
    return done.stdout
