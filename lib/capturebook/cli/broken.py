"""A subject that gives no step to look at: what is wrong with it, and where, in one line."""

import ast

from .. import paths
from ..attribution.evidence import breach
from ..records import Record


def broken(record: Record) -> str:
    """That the subject cannot be imported or built, or lacks a factor asked for; "" for one that got past its build."""
    if record.stage != "build" or record.status not in ("fail", "skipped"):
        return ""
    error = breach(record) or record.root
    if error is None:
        lacks = record.reason.startswith("the subject has no factor")
        return f"Not probed: {record.subject.target}: {record.reason}" if lacks else ""
    mine = [frame for frame in error.frames if frame.tag == "subject"]
    what = "imported" if mine and mine[-1].function == "<module>" else "built"
    at = f"{mine[-1].file}:{mine[-1].line}" if mine else _defined(record.subject.target)
    return f"Not probed: the step cannot be {what}: {at}: {error.type}: {error.text.partition(chr(10))[0]}"


def _defined(target: str) -> str:
    """`file.py:line` of the build function where its file shows it, else the target."""
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        for node in ast.parse(paths.resolve(where).read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return f"{where}:{node.lineno}"
    return target
