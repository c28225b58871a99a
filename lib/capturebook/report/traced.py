"""What Dynamo's trace of a step shows, in lines: for `capturebook probe`, notebook 03 and the report's head alike."""

from ..attribution.evidence import breach
from ..records import Record

HOST_READS = (
    *("Tensor.item()", "Tensor.tolist()", "data-dependent", "Data-dependent", "Data dependent"),
    "Dynamic shape operator",
)
"""Words of Dynamo's reasons for a break where a value, or a size that depends on values, goes to the host."""

RESUMED = "torch_dynamo_resume_in_"
"""Begins Dynamo's name for what it compiles of a function behind a break in it."""

SUSPECT = "suspect: "
"""Begins a line that says what a capture would make of the line before it."""


def failure(record: Record) -> str:
    """What ended a trace, in one line with the subject's innermost line; "" of one that passed."""
    if record.status == "pass":
        return ""
    error = breach(record) or record.root
    if error is None:
        return record.reason
    place = next((f", at {f.file}:{f.line}" for f in reversed(error.frames) if f.tag == "subject"), "")
    return f"{error.type}: {error.text.partition(chr(10))[0]}{place}"


def found(record: Record) -> list[str]:
    """Graph breaks and recompiles with their lines, and what of it a capture would not forgive."""
    lines, read = [], False
    for b in record.payload.get("breaks", []):
        lines.append(f"break at {b['file']}:{b['line']}: {b['code']}  ({_cause(b['reason'])})")
        if any(word in b["reason"] for word in HOST_READS):
            read = True
            lines.append(f"{SUSPECT}a value is read on the host here; in a capture that is an error 900 (class K2)")
    changes = False
    for r in record.payload.get("recompiles", []):
        line = f"compiled again at call {r['call'] + 1}, {r['file']}:{r['line']}: {r['guard']} no longer holds"
        # Behind a read the guard may name the value read. It changes with the inputs, and where a launch would have
        # written it, with whatever the memory held: no sign of anything that the host keeps.
        if read and r["function"].startswith(RESUMED):
            line += ", behind a value read on the host"
        elif r["call"]:  # in the first call nothing has changed since another: one function was called in two ways
            changes = True
        lines.append(line)
    if changes:
        lines.append(f"{SUSPECT}what a guard names changes on the host; a replay keeps the captured value (class K6)")
    return lines


def _cause(reason: str) -> str:
    """Dynamo's own first sentence, without the explanation and hints that follow it."""
    return reason.partition(" Explanation:")[0][:160]
