"""The Gluon kernels with delays planted around every hand-over between their warps, and with faults planted besides.

The kernels' own sources, with a line put in: before each wait, arrival, barrier, and the bias and last part of a tile
every warp sleeps for a random time of up to 4 us, so that warps drift apart by more than a tile takes.
"""

import importlib.util
import re
from pathlib import Path

PACKAGE = "capturebook.kernels.sparse_mla"
LAST = r"(?:part\.slice\(224|bias\.index\(buffer\)\.store\()"
"""The stores of a tile that come late: of the rope in fp8, of the bias in bf16 (in fp8 it comes first)."""

PLACES = re.compile(rf"^( +)(mbarrier\.(?:wait|arrive)\(|barrier\(\)|{LAST})", re.MULTILINE)

PAUSE = '''

@gluon.jit
def pause():
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    warp = gl.arange(0, 32 * gl.num_warps(), layout=LINE) // 32
    gl.inline_asm_elementwise(_SLEEP, "=r,r", [warp], dtype=gl.int32, is_pure=False, pack=1)


_SLEEP = gl.constexpr("""
{
.reg .b32 noise;
mov.u32 noise, %clock;
mad.lo.u32 noise, $1, 0x3c6ef35f, noise;
mul.lo.u32 noise, noise, 0x9e3779b1;
shr.u32 noise, noise, 20;
nanosleep.u32 noise;
mov.b32 $0, noise;
}
""")
'''

FAULTS = {
    "none": ("", "", ""),
    # a tile is said to be ready before its last part is written
    "ready too early": (
        "gluon_{cache}",
        r"( +)({last}.*\n)((?:.*\n)*?) +mbarrier\.arrive\(ready.*\n",
        r"\1mbarrier.arrive(ready.index(buffer), count=1)\n\1pause()\n\1\2\3",
    ),
    # the consumer gives a buffer back and then reads it
    "free too early": (
        "gluon_consume",
        r"( +)(mbarrier\.wait\(ready.*\n)((?:.*\n)*?)( +)mbarrier\.arrive\(free.*\n",
        r"\1\2\1mbarrier.arrive(free.index(buffer), count=1)\n\1pause()\n\3",
    ),
}
"""By name: the module, what to replace in it (with the delays), by what."""


def delayed_kernel(cache: str, fault: str, folder: Path):
    """`gluon_{cache}_kernel` with delays and a fault of FAULTS; its sources are written to `folder`."""
    where, old, new = FAULTS[fault]
    for name in ("gluon_consume", f"gluon_{cache}"):
        path = Path(importlib.util.find_spec(f"{PACKAGE}.{name}").origin)
        text = path.read_text().replace("from .", f"from {PACKAGE}.")
        text, places = PLACES.subn(r"\1pause()\n\1\2", text)
        assert places >= 3, f"{name}: its hand-overs are not found"
        if where.format(cache=cache) == name:
            last = {"fp8": r"part\.slice\(224", "bf16": r"bias\.index\(buffer\)\.store"}[cache]
            text, found = re.subn(old.replace("{last}", last), new, text)
            assert found == 1, f"{name}: nothing to plant {fault!r} in"
        module = f"delayed_{cache}_{fault.replace(' ', '_')}_{name}"
        if name == "gluon_consume":
            consume = module
        text = text.replace(f"from {PACKAGE}.gluon_consume", f"from {consume}")
        (folder / f"{module}.py").write_text(text + PAUSE)
    return getattr(importlib.import_module(module), f"gluon_{cache}_kernel")
