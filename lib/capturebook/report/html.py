"""report.html: one file that says what a run found, and loads nothing from anywhere."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import provenance
from ..records import Arm, Record
from . import figures, figures_kernels, needs, rivals, summary, tables, words
from .block import Block, details, link, paragraph, table
from .run_data import RunData, sample_run

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    parts: list[Block]


def environment() -> Environment:
    """Templates with every value escaped unless it is a Block or Markup, and a missing name an error."""
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


def page(template: str, title: str, **values) -> str:
    css = Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    return environment().get_template(template).render(title=title, css=css, **values)


def build(run_path: str | Path) -> Path:
    """Write `report.html` into a run folder and return its path.

    Raises FileNotFoundError or ValueError, one line, when the folder holds no run or a damaged one.
    """
    data = RunData.open(Path(run_path))
    out = data.path / "report.html"
    out.write_text(render(data, sample_run(data.path)), encoding="utf-8")
    return out


def render(data: RunData, sample: RunData | None = None) -> str:
    """The report's HTML. `sample`: the genuine H200 run, shown apart when this run decided nothing."""
    return page(
        "report.html.j2",
        f"{summary.headline(data)}: {data.hypothesis['title']}",
        data=data,
        verdict=data.verdict,
        headline=summary.headline(data),
        says=[_says(data)] if data.decided else [summary.why_undecided(data), summary.skipped(data)],
        done=[] if data.decided else summary.done(data.records),
        verdict_rows=_verdict_rows(data),
        sample=_sample(sample) if sample is not None and not data.decided else None,
        sections=_sections(data),
        when=_when(data.info["started"]),
        machine=_machine(data.info.get("provenance") or {}),
    )


def _says(data: RunData) -> str:
    verdict = data.verdict
    if verdict["owner"] == "none":
        return f"In {_asked(data)} the step was captured, replayed with changed inputs and came out right."
    return verdict.get("says") or f"Class {verdict['class']}."


def _asked(data: RunData) -> str:
    return data.asked.label(Arm())


def _verdict_rows(data: RunData) -> list[tuple]:
    """The verdict's fields that say something, in the order in which people ask for them."""
    verdict, root = data.verdict, data.verdict["root"]
    expected = verdict["question"].get("error")
    rows = [
        (
            "Question",
            f"Does the step survive with {_asked(data)}?{f' Reported there: {expected}.' if expected else ''}",
        ),
        ("Class", verdict["class"]),
        ("Root", _root(root)),
        ("Fix", words.spoken(verdict["fix"])),
        ("Tried here", verdict["fixed"] if verdict["fix"] else None),
        ("Gain", verdict["gain"] if verdict["gain"] is None else words.spoken(verdict["gain"])),
    ]
    return [(name, value) for name, value in rows if value not in (None, "", "none")]


def _root(root: dict | None) -> str:
    if not root:
        return ""
    named = f"{root['code']} {root['name']}: " if root.get("code") else ""
    return f"{named}{root.get('text') or ''}"


def _sections(data: RunData) -> list[Section]:
    records, asked = data.records, data.asked
    notes = [*data.verdict["caveats"], *data.verdict["open"], *data.aside]
    captured = any(r.kind == "step" and r.role != "control" and r.arm and r.arm.capture != "none" for r in _ran(data))
    sections = [
        Section("rivals", "Rivals: predicted and seen", rivals.blocks(data.hypothesis, records)),
        Section("needs", "What the outcome rests on", [needs.needed(asked, records)] if captured else []),
        Section("arms", "All arms", [figures.arms_matrix(records, asked)] if captured else []),
        Section("hazards", "Hazards in other arms", [_hazards(data.verdict["hazards"])] if captured else []),
        Section("build", "Kernels as compiled", [figures_kernels.build_heat(records), _interpreted(data)]),
        Section(
            "sweep",
            "Throughput",
            [figures_kernels.sweep(records)] if any(r.kind == "sweep" for r in _ran(data)) else [],
        ),
        Section("evidence", "Evidence", _evidence(data)),
        Section("skipped", "What did not run, and why", [_skipped(data)]),
        Section("notes", "Caveats and open points", [_list(notes)]),
        Section("timeline", "When it ran", [figures.timeline(records), _notebooks(data)]),
        Section("environment", "Environment", [tables.facts(_provenance(data))]),
        Section("parameters", "Parameters", [tables.facts(data.info["parameters"], ("Parameter", "Value"))]),
    ]
    return [section for section in sections if section.parts]


def _ran(data: RunData) -> list[Record]:
    return [r for r in data.probes if r.status in words.RAN]


def _list(items: list) -> Block:
    if not items:
        return paragraph("None.")
    body = Markup("").join(Markup("<li>{}</li>").format(words.spoken(item)) for item in items)
    return Block(str(Markup("<ul>{}</ul>").format(body)), "\n".join(f"- {words.spoken(item)}" for item in items))


def _hazards(hazards: list) -> Block:
    if not hazards:
        return paragraph("No failure outside the question's arm has a class.")
    return _list(hazards)


def _interpreted(data: RunData) -> Block:
    rows = [
        [
            r.payload.get("kernel"),
            words.badge(r.status, words.short(r)),
            r.payload.get("error"),
            r.payload.get("tolerance"),
        ]
        for r in data.records
        if r.kind == "interpret"
    ]
    if not rows:
        return Block("", "")
    return table(["Kernel", "Status", "Error", "Allowed"], rows, "Under Triton's interpreter, against float64")


def _evidence(data: RunData) -> list[Block]:
    ran = _ran(data)
    groups = [
        ("Controls", [r for r in ran if r.role == "control"], False),
        ("Steps", [r for r in ran if r.kind == "step" and r.role != "control"], False),
        ("Builds and everything else", [r for r in ran if r.kind != "step"], True),
    ]
    blocks = [
        paragraph(f"{len(data.probes)} probes: {words.tally(data.probes)}. A record counts only with this run's nonce.")
    ]
    for title, group, folded in groups:
        if group:
            inner = tables.evidence(group, data.asked)
            heading = Block(str(Markup("<h3>{}</h3>").format(title)), title)
            blocks.append(details(f"{title} ({len(group)})", inner) if folded else heading + inner)
    return blocks


def _skipped(data: RunData) -> Block:
    return tables.skipped(data.skipped, data.asked) if data.skipped else paragraph("Everything that was planned ran.")


def _notebooks(data: RunData) -> Block:
    rows = []
    for r in (r for r in data.records if r.kind == "notebook"):
        page_ = f"notebooks/{r.notebook}.html"
        name = link(page_, r.notebook) if (data.path / page_).is_file() else r.notebook
        rows.append(
            [
                name,
                words.badge(r.status, r.status.replace("_", " ")),
                r.payload.get("conclusion") or r.reason,
                f"{r.seconds:.0f}",
            ]
        )
    return table(["Notebook", "Status", "Concluded", "s"], rows)


def _provenance(data: RunData) -> dict:
    return {
        **(data.info.get("provenance") or {}),
        "code": data.info.get("code"),
        "schema_version": data.info["schema_version"],
    }


def _sample(sample: RunData) -> dict:
    same = sample.info.get("code") == provenance.code_tree()
    code = f"{sample.info.get('code')}, {'the present code' if same else 'which is not the present code'}"
    return {
        "headline": f"{sample.gpu}: {summary.headline(sample)}",
        "lines": [_says(sample)] if sample.decided else summary.opening(sample)[1:],
        "rows": [
            ("Recorded", f"{_when(sample.info['started'])} on {_machine(sample.info.get('provenance') or {})}"),
            ("Code tree", code),
            *_verdict_rows(sample),
        ],
    }


def _when(stamp: str) -> str:
    return f"{datetime.fromisoformat(stamp):%d %B %Y, %H:%M} UTC"


def _machine(facts: dict) -> str:
    gpu = (facts.get("gpu") or {}).get("name") or "no CUDA GPU"
    return ", ".join([gpu, *(f"{name} {facts[name]}" for name in ("driver", "torch", "triton") if facts.get(name))])
