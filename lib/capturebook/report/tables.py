"""The report's tables: evidence, what was skipped, plain facts."""

import re
import textwrap
from collections import defaultdict

from markupsafe import Markup

from ..measure.rows import place_name
from ..params import describe
from ..records import Arm, Link, Record
from . import classes, words
from .block import Block, link, paragraph, table


def evidence(records: list[Record], base: Arm | None = None, deciding: list[str] = ()) -> Block:
    """One row a probe: what was run, its id, how it ended and where, the exception chain, witnesses, time and log.

    `deciding` are ids of probes that the verdict rests on; their rows say so. The id is what `capturebook repro` takes.
    """
    rows = [
        [
            Markup('{}<br><code class="tag id">{}</code>').format(what(r, base), r.probe),
            _role(r, r.probe in deciding),
            _ended(r),
            _root(r),
            _witnesses(r),
            f"{r.seconds:.1f}",
            link(r.log, "log") if r.log else None,
        ]
        for r in records
    ]
    columns = ["Probe and its id", "Role", "Status", "Root or caveat", "While capturing", "s", "Log"]
    return table(columns, rows, stack=True) if rows else paragraph("No probe was run for this.")


def _ended(r: Record) -> Markup:
    """How it ended; where it did not pass, in which stage."""
    badge = words.badge(r.status, words.short(r))
    return badge if r.status == "pass" else Markup('{}<br><span class="tag">in {}</span>').format(badge, r.stage)


def _role(r: Record, deciding: bool) -> str:
    """Nothing for a planned arm that decides nothing: most rows are that."""
    role = r.kind if r.kind != "step" else "" if r.role == "arm" else r.role
    return ", ".join(filter(None, [role, "deciding" if deciding else ""]))


def what(r: Record, base: Arm | None) -> str:
    """What a probe was of: an arm as it differs from `base`, a control by its name, else what it was asked."""
    if r.arm is None:
        return _point(r.subject.options) if r.subject and r.subject.options else r.kind
    if r.arm.variant == "control":
        return r.subject.target.rpartition(":")[2] if r.subject else "control"
    return words.where(r.arm, base)


def _point(options: dict) -> str:
    """What a build, sweep or interpreter probe was asked, from its subject's options."""
    plain = ("part", "kernel", "config", "target", "unit", "compiled", "layer")
    named = ("batch", "sizes", "heads", "context", "max_context")
    found = [str(options[n]) for n in plain if n in options] + [f"{n}={options[n]}" for n in named if n in options]
    found += ["timed"] if options.get("timed") else []
    return " ".join([*found, "; ".join(map(place_name, options.get("places", [])))]).strip()


def _root(r: Record) -> Markup | str:
    if not r.chain:
        return "; ".join([r.reason, *r.caveats] if r.reason else r.caveats)
    summary = words.breakable(f"{r.root.code} {r.root.name}" if r.root.code else r.root.type)
    chain = Markup("").join(Markup("<li>{}</li>").format(_link_words(item)) for item in reversed(r.chain))
    return Markup("<details><summary>{}</summary><ol>{}</ol></details>").format(summary, chain)


def _link_words(item: Link) -> Markup:
    name = f"{item.module}.{item.type}" if item.module else item.type
    code = f" ({item.code} {item.name})" if item.code else ""
    thread = "" if item.thread == "main" else f" in thread {item.thread}"
    frames = [f"{f.file}:{f.line} {f.function} [{f.tag}]" for f in item.frames[-4:]]
    said, advice = words.message(item.text)
    text = Markup("{}{}{}: {}").format(name, code, thread, said)
    if advice:
        text += Markup('<details><summary>torch\'s advice</summary><pre class="wrap">{}</pre></details>').format(advice)
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
    return table(["Kernel", "Shape", "Status", "Error", "Allowed", "Why"], rows, stack=True)


def _error(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}"


def graph_breaks(records: list[Record]) -> Block:
    """What Dynamo and Inductor made of a step: graphs, breaks, and for each break the reason that Dynamo gives."""
    if not records:
        return paragraph("Nothing was compiled for the CPU in this run.")
    rows = []
    for r in records:
        seen = r.effective
        rows.append([
            words.where(r.arm), words.badge(r.status, words.short(r)), seen.get("unique_graphs"),
            seen.get("graph_breaks"), *([_recompiles(r)] if any(map(words.traced, records)) else []),
            Markup("").join(_breaks(r)) or _root(r),
        ])  # fmt: skip
    again = ["Recompiles"] if any(map(words.traced, records)) else []
    return table(["Arm", "Status", "Graphs", "Breaks", *again, "Why it breaks"], rows, stack=True)


_DYNAMO_SAYS_MORE = re.compile(r"\s+(?:Explanation|Hint|Developer debug context): ")


def _breaks(r: Record) -> list[Markup]:
    """Each break: the subject's line and the first line of the reason; Dynamo's explanation folded behind it."""
    found = [(f"{b['file']}:{b['line']} {b['code']}", b["reason"]) for b in r.payload.get("breaks", [])]
    return [
        _break(where, reason)
        for where, reason in found or [("", t) for t in r.effective.get("graph_break_reasons", [])]
    ]


def _break(where: str, reason: str) -> Markup:
    first = _DYNAMO_SAYS_MORE.split(reason.strip(), maxsplit=1)[0]
    line = Markup("<code>{}</code><br>").format(where) if where else Markup("")
    rest = reason.strip()[len(first) :].strip()
    if not rest:
        return Markup("<div>{}{}</div>").format(line, first)
    folded = '<div>{}<details class="long"><summary>{}</summary><pre class="wrap">{}</pre></details></div>'
    return Markup(folded).format(line, first, textwrap.dedent(rest))


def _recompiles(r: Record) -> Markup:
    """Each compilation after the first: the call that asked for it, the line, and the guard that failed."""
    one = "<div>at call {}, {}:{}<br><code>{}</code> no longer holds</div>"
    return Markup("").join(
        Markup(one).format(c["call"] + 1, c["file"], c["line"], c["guard"]) for c in r.payload.get("recompiles", [])
    ) or Markup("none" if words.traced(r) else "")


def hazards(found: list[dict]) -> Block:
    """Failures in arms that the run was not about, each with its class as far as the records decide it."""
    if not found:
        return paragraph("No other arm failed.")
    rows = []
    for item in found:
        root = item["root"] or {}
        shown = words.badge(item["status"], str(root.get("code") or root.get("name") or item["status"]))
        name = Markup('{}<br><span class="tag">{}</span>').format(item["id"], item["label"])
        klass = classes.named(item["class"]) if item["class"] else item["owner"]
        rows.append([name, shown, klass, "; ".join(item["open"])])
    return table(["Arm", "Outcome", "Class", "Open"], rows, stack=True)


def skipped(records: list[Record], base: Arm | None = None) -> Block:
    """What did not run, grouped by reason."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for r in records:
        groups[r.reason, r.status, r.kind].append(r)
    rows = [
        [
            reason,
            words.badge(status, status.replace("_", " ")),
            kind,
            len(group),
            _several(list(dict.fromkeys(what(r, base) for r in group))),
        ]
        for (reason, status, kind), group in groups.items()
    ]
    return table(["Reason", "Status", "Kind", "Probes", "Which"], rows, stack=True)


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


def settings(given: dict, question: dict) -> Block:
    """A run's parameters with units and meaning. `question` (of run.json) says what those left empty came to."""
    known = {row["name"]: row for row in describe()}
    left = {
        "question": f"taken from the hypothesis: {words.used(Arm(**question['arm']))}",
        "run_dir": "made for this run",
    }
    left["error"] = f"taken from the hypothesis: {question['error']}" if question.get("error") else "not known"
    rows = []
    for name, value in given.items():
        unit = known.get(name, {}).get("unit")
        said = left[name] if not value and name in left else _value(value) + (f" {unit}" if unit and value else "")
        rows.append([name, said, known.get(name, {}).get("help")])
    return table(["Parameter", "Value", "What it is"], rows, stack=True)


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
