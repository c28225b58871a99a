"""What lines of a log mean: how a program says what went wrong, and the class of it."""

import re
from dataclasses import dataclass

from ..records.cuda_errors import CUDA_ERRORS, code_of

# Pattern, class, and words of which each of its matches holds one.
_KNOWN = [
    (r"@jit functions should be defined in a Python file", "C15", ("@jit functions should",)),
    (r"Cannot re-initialize CUDA in forked subprocess", "C16", ("re-initialize CUDA",)),
    (r"No such file or directory: '[^']*<stdin>'", "C16", ("<stdin>'",)),
    (r"Can't get attribute '\w+' on <module '__main__' \(built-in\)>", "C16", ("Can't get attribute",)),
    (r"DeadKernelError|Kernel died before replying|[Kk]ernel died", "C17", ("DeadKernelError", "ernel died")),
    (r"[Aa]ddress already in use|EADDRINUSE", "C9", ("ddress already in use", "EADDRINUSE")),
    (
        r"No space left on device|Read-only file system|[Dd]isk quota exceeded",
        "C6",
        ("No space left on", "Read-only file system", "isk quota exceeded"),
    ),
    (
        r"can(no|')t create .*([Nn]onexistent|Permission denied)|: line \d+: [^:]+: No such file or directory",
        "C6",
        ("can't create", "cannot create", ": No such file or directory"),
    ),
    (r": (command )?not found\b", "C5", (": not found", ": command not found")),
]
KNOWN = [(re.compile(pattern), klass) for pattern, klass, _ in _KNOWN]
WORDS = (
    *(word for _, _, words in _KNOWN for word in words),
    "CUDA",
    "cudaError",
    *(CUDA_ERRORS[code][1] for code in range(900, 909)),
)
"""One of them is in every line that means something."""


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
    return any(word in text for word in WORDS)


def meaning(line: str) -> Said | None:
    """What a line of a log says, None for nothing that we know."""
    for pattern, klass in KNOWN:
        if pattern.search(line):
            return Said(line.strip()[:300], klass)
    found = code_of(line)
    return Said(line.strip()[:300], "", *found) if found else None
