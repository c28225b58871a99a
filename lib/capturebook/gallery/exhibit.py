"""What the gallery's page shows of a case: symptom, cause, evidence and fix, taken from table, source and records."""

import ast
import difflib
from functools import cache

from ..attribution.decision import Decision
from ..attribution.recipes import RECIPES
from ..attribution.rules import RULES
from ..records import Arm, Record
from .case import Case
from .evaluate import Asked

PLAIN = "captured uncompiled, after two calls"
"""What the default arm is called."""


@cache
def _builds(file) -> dict[str, tuple[str, str]]:
    """{build function: (its source, its docstring)} of a file of steps, without importing it."""
    text = file.read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {f.name: (ast.get_source_segment(text, f), ast.get_docstring(f) or "") for f in functions}


def source(case: Case) -> str:
    return _builds(case.file)[case.build][0]


def cause(case: Case) -> str:
    return _builds(case.file)[case.build][1]


def diff(case: Case) -> list[tuple[str, str]]:
    """The fix as a change of code: (" ", "-" or "+", line), the docstrings left out. Empty without a fixed variant."""
    if not case.fixed:
        return []
    before, after = (_body(case.file, name) for name in (case.build, case.fixed))
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    return [(line[0], line[1:]) for line in lines if not line.startswith("@@")]


def _body(file, name: str) -> list[str]:
    text, doc = _builds(file)[name]
    return [line for line in text.splitlines() if line.strip() != f'"""{doc}"""']


def classes() -> dict[str, dict[str, str]]:
    """{class: what the rules conclude, and what to do about it}, in the order of the letters."""
    said: dict[str, list[str]] = {}
    for rule in RULES:
        if rule.cls:
            said.setdefault(rule.cls, []).append(rule.says)
    order = sorted(said, key=lambda name: (name[0] != "K", name))
    return {name: {"says": "; or ".join(dict.fromkeys(said[name])), "fix": RECIPES[name].says} for name in order}


def exhibit(asked: Asked, known: dict[str, Record], result: dict, repaired: dict | None) -> dict:
    """One case as plain values for the page. `repaired`: the result of its fixed variant, None where it was not run."""
    case, decision = asked.case, Decision(asked.info, asked.records(known))
    verdict = asked.verdict(known)
    return {
        "id": case.id,
        "class": case.cls,
        "symptom": case.symptom,
        "cause": cause(case),
        "asked": decision.arm.label() if decision.arm != Arm() else PLAIN,
        "env": " ".join(f"{name}={value}" for name, value in case.env.items()),
        "evidence": evidence(decision.primary),
        "fix": case.fix,
        "tried": verdict.fix if verdict.fixed == "fixed" else "",
        "diff": diff(case),
        "repaired": repaired,
        "source": source(case),
        "file": case.target.partition(":")[0],
        "report": case.source,
        "thread": case.thread,
        "silent": case.silent,
        "result": result,
        "rule": verdict.rule,
    }


def evidence(record: Record | None) -> list[str]:
    """What the deciding record shows, a line each: outcome, root, where, what witnesses saw, the first wrong call."""
    if record is None:
        return []
    lines = [f"{record.status} at {record.stage}" if record.status != "pass" else "passes, replayed and compared"]
    if record.root:
        root = record.root
        text = root.text.partition("\n")[0]
        lines.append(f"root: {f'{root.code} {root.name}' if root.code else root.type}: {text}"[:300])
        if len(record.chain) > 1 and record.chain[0].code != root.code:
            top = record.chain[0]
            lines.append(f"on top of it: {f'{top.code} {top.name}' if top.code else top.type}")
        mine = [frame for frame in root.frames if frame.tag == "subject"]
        if mine:
            lines.append(f"where: {mine[-1].file}:{mine[-1].line}, in {mine[-1].function}")
    counted = {name.partition("@")[0]: n for name, n in record.counts.items() if name.endswith("@capture")}
    if counted:
        lines.append("while capturing: " + ", ".join(f"{name} {n}" for name, n in sorted(counted.items())))
    wrong = next((check for check in record.checks if not check.ok), None)
    if wrong:
        size = "not finite" if wrong.error is None else f"{wrong.error:.3g} of the largest value"
        lines.append(f"first wrong: {wrong.call}, {wrong.output}: off by {size}")
    if record.graph.get("missing"):
        lines.append(f"missing from the graph: {', '.join(record.graph['missing'])}"[:300])
    if record.effective.get("threads"):
        lines.append(f"threads: {', '.join(record.effective['threads'])}")
    return lines + [f"caveat: {text}"[:300] for text in record.caveats]
