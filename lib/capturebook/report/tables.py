"""The report's tables: evidence, what was skipped, plain facts."""

from collections import defaultdict

from markupsafe import Markup

from ..records import Arm, Link, Record
from . import words
from .block import Block, link, paragraph, table


def evidence(records: list[Record], base: Arm | None = None, deciding: list[str] = ()) -> Block:
    """One row a probe: what was run, how it ended and where, the exception chain, witnesses, its log.

    `deciding` are ids of probes that the verdict rests on; their rows say so.
    """
    rows = [
        [
            _what(r, base),
            (r.role if r.kind == "step" else r.kind) + (", deciding" if r.probe in deciding else ""),
            words.badge(r.status, words.short(r)),
            r.stage,
            _root(r),
            _witnesses(r),
            f"{r.seconds:.1f}",
            link(r.log, "log") if r.log else None,
        ]
        for r in records
    ]
    return table(["Probe", "Role", "Status", "Stage", "Root or caveat", "While capturing", "s", "Log"], rows)


def _what(r: Record, base: Arm | None) -> str:
    if r.arm is None:
        return _point(r.subject.options) if r.subject and r.subject.options else r.kind
    if r.arm.variant == "control":
        return r.subject.target.rpartition(":")[2] if r.subject else "control"
    return words.where(r.arm, base)


def _point(options: dict) -> str:
    """What a build, sweep or interpreter probe was asked, from its subject's options."""
    names = ("kernel", "config", "target", "batch", "heads", "context", "max_context")
    return " ".join(str(options[n]) if n in names[:3] else f"{n}={options[n]}" for n in names if n in options)


def _root(r: Record) -> Markup | str:
    if not r.chain:
        return "; ".join([r.reason, *r.caveats] if r.reason else r.caveats)
    summary = f"{r.root.code} {r.root.name}" if r.root.code else r.root.type
    chain = Markup("").join(Markup("<li>{}</li>").format(_link_words(item)) for item in reversed(r.chain))
    return Markup("<details><summary>{}</summary><ol>{}</ol></details>").format(summary, chain)


def _link_words(item: Link) -> Markup:
    name = f"{item.module}.{item.type}" if item.module else item.type
    code = f" ({item.code} {item.name})" if item.code else ""
    thread = "" if item.thread == "main" else f" in thread {item.thread}"
    frames = [f"{f.file}:{f.line} {f.function} [{f.tag}]" for f in item.frames[-4:]]
    text = Markup("{}{}{}: {}").format(name, code, thread, item.text)
    return text + Markup("").join(Markup("<br><code>{}</code>").format(frame) for frame in frames)


def _witnesses(r: Record) -> str:
    seen = {kind.removesuffix("@capture"): n for kind, n in r.counts.items() if kind.endswith("@capture")}
    return ", ".join(f"{kind} {count}" for kind, count in seen.items()) or ("" if r.watched else "not watched")


def interpreted(records: list[Record]) -> Block:
    """Kernels under Triton's interpreter against float64; errors are the reference module's, relative."""
    if not records:
        return paragraph("No kernel was interpreted in this run.")
    rows = []
    for r in records:
        p = r.payload
        shape = ", ".join(f"{name} {p[name]}" for name in ("batch", "heads", "context", "window", "topk") if name in p)
        shown = words.badge(r.status, words.short(r))
        rows.append([p.get("kernel", ""), shape, shown, _error(p.get("error")), _error(p.get("tolerance")), _root(r)])
    return table(["Kernel", "Shape", "Status", "Error", "Allowed", "Why"], rows)


def _error(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}"


def graph_breaks(records: list[Record]) -> Block:
    """What Dynamo and Inductor made of a step: graphs, breaks and the reasons that Dynamo gives for them."""
    if not records:
        return paragraph("Nothing was compiled for the CPU in this run.")
    rows = []
    for r in records:
        seen = r.effective
        reasons = "; ".join(seen.get("graph_break_reasons", []))
        shown = words.badge(r.status, words.short(r))
        rows.append(
            [words.where(r.arm), shown, seen.get("unique_graphs"), seen.get("graph_breaks"), reasons or _root(r)]
        )
    return table(["Arm", "Status", "Graphs", "Breaks", "Reasons"], rows)


def hazards(found: list[dict]) -> Block:
    """Failures in arms that the run was not about, each with its class as far as the records decide it."""
    if not found:
        return paragraph("No other arm failed.")
    rows = []
    for item in found:
        root = item["root"] or {}
        shown = words.badge(item["status"], str(root.get("code") or root.get("name") or item["status"]))
        rows.append([item["label"], item["id"], shown, item["class"] or item["owner"], "; ".join(item["open"])])
    return table(["Arm", "Named", "Outcome", "Class", "Open"], rows)


def skipped(records: list[Record], base: Arm | None = None) -> Block:
    """What did not run, grouped by reason."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for r in records:
        groups[r.reason, r.status, r.kind].append(r)
    rows = [
        [
            reason,
            status.replace("_", " "),
            kind,
            len(group),
            _several(list(dict.fromkeys(_what(r, base) for r in group))),
        ]
        for (reason, status, kind), group in groups.items()
    ]
    return table(["Reason", "Status", "Kind", "Probes", "Which"], rows)


def _several(names: list[str]) -> Markup | str:
    """Many names fold into one line that opens."""
    if len(names) <= 4:
        return "; ".join(names)
    items = Markup("").join(Markup("<li>{}</li>").format(name) for name in names)
    return Markup("<details><summary>{} and {} more</summary><ul>{}</ul></details>").format(
        names[0], len(names) - 1, items
    )


def facts(data: dict, columns: tuple[str, str] = ("What", "Value")) -> Block:
    """Nested plain data as a table of dotted names and values."""
    return table(list(columns), [[name, value] for name, value in _flat(data)])


def _flat(data: dict, prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in data.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _value(value)))
    return rows


def _value(value) -> str:
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
