"""What lines of a log mean: how a program says what went wrong, and the class of it."""

import re
from dataclasses import dataclass

from ..records.cuda_errors import CUDA_ERRORS, code_of

_KNOWN = [
    (r"@jit functions should be defined in a Python file", "C15"),
    (r"Cannot re-initialize CUDA in forked subprocess", "C16"),
    (r"No such file or directory: '[^']*<stdin>'", "C16"),
    (r"Can't get attribute '\w+' on <module '__main__' \(built-in\)>", "C16"),
    (r"DeadKernelError|Kernel died before replying|[Kk]ernel died", "C17"),
    (r"[Aa]ddress already in use|EADDRINUSE", "C9"),
    (r"No space left on device|Read-only file system|[Dd]isk quota exceeded", "C6"),
    (r"can(no|')t create .*([Nn]onexistent|Permission denied)|: line \d+: [^:]+: No such file or directory", "C6"),
    (r": (command )?not found\b", "C5"),
]
KNOWN = [(re.compile(pattern), klass) for pattern, klass in _KNOWN]


def classes_of_error(code: int) -> str:
    """Which classes a CUDA error of a server's capture may be, by the code alone; a run of the workbook decides."""
    if code == 900:
        return "K1, K2, B1, B2 or B4"
    if code in (902, 904, 905, 906, 907, 908):
        return "K3 or B5"
    return "B6, or what failed before it" if code == 901 else ""


@dataclass(frozen=True)
class Said:
    """One line that means something. `klass` is C1 to C18 or "", `code` a CUDA error or None."""

    line: str
    klass: str = ""
    code: int | None = None
    name: str = ""


def may_mean(text: str) -> bool:
    """Whether a line of a text may mean something: a quick look at many lines at once, for logs that flood."""
    return (
        any(pattern.search(text) for pattern, _ in KNOWN)
        or "CUDA" in text
        or "cudaError" in text
        or any(CUDA_ERRORS[code][1] in text for code in range(900, 909))
    )


def meaning(line: str) -> Said | None:
    """What a line of a log says, None for nothing that we know."""
    for pattern, klass in KNOWN:
        if pattern.search(line):
            return Said(line.strip()[:300], klass)
    found = code_of(line)
    return Said(line.strip()[:300], "", *found) if found else None
