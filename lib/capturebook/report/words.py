"""How outcomes are named: a symbol and a word for each status, so that nothing rests on colour alone."""

import re
from collections import Counter

from markupsafe import Markup

from ..measure.rows import entries_of
from ..records import OPTION, Arm, Record, write_option

STATUSES = {
    "pass": ("✓", "passes"),
    "wrong": ("≠", "wrong result"),
    "fail": ("✗", "fails"),
    "timeout": ("◷", "runs out of time"),
    "not_run": ("–", "did not run"),
    "skipped": ("○", "skipped"),
}
OWNERS = {
    "none": "It survives",
    "kernel": "The kernel is at fault",
    "stack": "The stack is at fault, not the kernel",
    "environment": "The environment is at fault",
    "not_run": "Not decided: the evidence did not run",
    "undetermined": "Undetermined",
}
QUESTION = "the question's arm"
SIZES = ("batch", "context", "max_context")
RAN = ("pass", "wrong", "fail", "timeout")


def short(record: Record) -> str:
    """The fewest words that tell outcomes apart: the CUDA code where there is one, else the status."""
    if record.status != "fail":
        return record.status.replace("_", " ")
    root = record.root
    if root is None:
        return "fail"
    return str(root.code) if root.code else root.type.removesuffix("Error")[:16]


def outcome(record: Record) -> str:
    """Symbol, status and, after a failure, the root: `✗ fails with 905 cudaErrorStreamCaptureIsolation`."""
    symbol, word = STATUSES[record.status]
    root = record.root
    if record.status != "fail" or root is None:
        return f"{symbol} {word}"
    return f"{symbol} {word} with {root.code} {root.name}" if root.code else f"{symbol} {word} with {root.type}"


def badge(status: str, text: str) -> Markup:
    """A status as a coloured word with its symbol; the symbol and word carry the meaning."""
    return Markup('<span class="badge {}">{} {}</span>').format(status, STATUSES[status][0], text)


def agreed(records: list[Record]) -> str:
    """The outcomes of several records of one arm: one word, or all of them where they disagree; † marks a caveat."""
    mark = " †" if any(r.caveats for r in records) else ""
    return " / ".join(dict.fromkeys(short(r) for r in records)) + mark


def worst(records: list[Record]) -> str:
    """The status to colour a group of records with: what ran before what did not, failures first."""
    order = ("fail", "wrong", "timeout", "pass", "not_run", "skipped")
    return min((r.status for r in records), key=order.index)


def factor(name: str, value) -> str:
    """One factor as the command line writes it: `overlap=true`, `env=unset`."""
    if name.startswith(OPTION):
        return f"{name}={write_option(value)}"
    if isinstance(value, dict):
        value = ",".join(f"{k}={v}" for k, v in sorted(value.items())) or "unset"
    return f"{name}={str(value).lower() if isinstance(value, bool) or value is None else value}"


def comparable(arm: Arm, base: Arm) -> Arm:
    """The arm with sizes that `base` leaves open left open too: a question that names no batch is about any."""
    left_open = {name: None for name in SIZES if getattr(base, name) is None and getattr(arm, name) is not None}
    return arm.changed(**left_open) if left_open else arm


def where(arm: Arm | None, base: Arm | None = None) -> str:
    """An arm as the factors in which it differs from `base`."""
    if arm is None or base is None:
        return arm.label() if arm else ""
    arm = comparable(arm, base)
    return QUESTION if arm == base else arm.label(base)


CALLED = {
    "cold": "at its first call, nothing warmed up",
    "kernel_cold": "at its first call, all but the step warmed up",
    "warm1": "after one call",
    "warm2": "after two calls",
    "warm3": "after three calls",
}


def used(arm: Arm) -> str:
    """How an arm uses the step, in words: `captured and compiled, after two calls, with kernel=mma`."""
    modes = {"default": "compiled", "eager": "compiled by backend eager", "aot_eager": "compiled by backend aot_eager"}
    compiled = modes.get(arm.compile, f"compiled in mode {arm.compile}")
    captured = "captured" if arm.capture == "global" else f"captured in mode {arm.capture}"
    match arm.capture != "none", arm.compile != "none":
        case True, True:
            how = f"{captured} and {compiled}"
        case True, False:
            how = f"{captured}, not compiled"
        case False, True:
            how = f"{compiled}, not captured"
        case _:
            how = "neither captured nor compiled"
    places = [f"on another {name}" for name in ("stream", "thread") if getattr(arm, name) == "other"]
    told = ("variant", "capture", "compile", "warmup", "stream", "thread")
    rest = [factor(name, value) for name, (value, _) in arm.differences(Arm()).items() if name not in told]
    called = " and ".join([CALLED[arm.warmup], *places]) if places else CALLED[arm.warmup]
    return ", ".join([how, called, *([f"with {listed(rest)}"] if rest else [])])


def asked(arm: Arm) -> str:
    """The question about an arm as a sentence."""
    who = "the step's twin" if arm.variant == "twin" else "the step"
    return f"Does {who} survive when it is {used(arm)}?"


BOILERPLATE = re.compile(
    r"^\s*(Search for `cuda|CUDA kernel errors might be asynchronously|For debugging consider passing CUDA_LAUNCH|"
    r"Compile with `TORCH_USE_CUDA_DSA|Set TORCHDYNAMO_VERBOSE|For even more developer context|"
    r"You can suppress this exception)"
)
"""Lines that torch appends to its exceptions whatever happened."""


def message(text: str) -> tuple[str, str]:
    """What an exception says, and the advice that torch appends to every one."""
    lines = text.splitlines()
    advice = [line for line in lines if BOILERPLATE.match(line)]
    return "\n".join(line for line in lines if line not in advice).strip(), "\n".join(advice)


def breakable(name: str) -> Markup:
    """A long name that a narrow column breaks between its words: after `_` and `=`, before a capital."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=])(?=\w)|(?<=[a-z])(?=[A-Z])", name))


def of_floor(point: dict) -> str | None:
    """How many times its floor a time is: 4.7; None where there is no floor or no time."""
    return f"{1 / point['share']:,.3g}" if point.get("share") else None


def entries(points: list[dict]) -> str | None:
    """Entries that a request of these points reads on average, from fewest to most; None where none has lists."""
    found = [n for n in map(entries_of, points) if n is not None]
    return span(found) if found else None


def span(values: list[float]) -> str:
    """`601`, `598 to 601`, in whole numbers."""
    least, most = f"{min(values):.0f}", f"{max(values):.0f}"
    return least if least == most else f"{least} to {most}"


def traced(record: Record) -> bool:
    """Dynamo traced it as for a GPU and nothing ran; other records of kind trace were compiled and run on the CPU."""
    return record.kind == "trace" and "calls" in record.payload


def tally(records: list[Record]) -> str:
    """`31 pass, 14 fail, 2 skipped`, in a fixed order."""
    counts = Counter(r.status for r in records)
    return ", ".join(f"{counts[s]} {s.replace('_', ' ')}" for s in STATUSES if counts[s]) or "none"


def listed(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def a(gpu: str) -> str:
    """A GPU's name with its article: `an NVIDIA H200`, `a Tesla T4`."""
    return f"{'an' if gpu.startswith(('NVIDIA', 'AMD', *'AEIOU')) else 'a'} {gpu}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 step`, `3 steps`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def point(p: dict) -> str:
    """Where a sweep point lies: `batch 8, context 2048 of 131072`; a step may have no context, or no maximum."""
    context = f", context {p['context']}" if p["context"] else ""
    return f"batch {p['batch']}{context}" + (f" of {p['max_context']}" if p.get("max_context") else "")
