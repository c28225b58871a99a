"""The report's sections below the verdict: each answers one question from the run's records."""

from dataclasses import dataclass

from markupsafe import Markup

from ..measure.rows import build_rows_of, sweep_points
from ..records import Record
from . import figures, figures_build, figures_sweep, launches, needs, rivals, tables, words
from .block import Block, details, link, paragraph, table
from .run_data import RunData


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    parts: list[Block]


def sections(data: RunData) -> list[Section]:
    """All sections that have something to say: a machine without a GPU has no matrix of arms."""
    records, asked = data.records, data.asked
    notes = [*data.verdict["caveats"], *data.verdict["open"], *data.aside]
    ran = {kind: [r for r in _ran(data) if r.kind == kind] for kind in ("interpret", "trace", "sweep", "step")}
    captured = any(r.role != "control" and r.arm and r.arm.capture != "none" for r in ran["step"])
    parts = [
        ("rivals", "Rivals: predicted and seen", True, lambda: rivals.blocks(data.hypothesis, records)),
        (
            "needs",
            "What the outcome rests on",
            captured,
            lambda: [_list(data.conclusions), needs.needed(asked, records)],
        ),
        ("arms", "All arms", captured, lambda: [figures.arms_matrix(records, asked)]),
        ("hazards", "Hazards in other arms", captured, lambda: [tables.hazards(data.verdict["hazards"])]),
        ("build", "Kernels as compiled", True, lambda: [figures_build.build_heat(build_rows_of(records))]),
        ("interpreted", "Kernels as interpreted", ran["interpret"], lambda: [tables.interpreted(ran["interpret"])]),
        ("compiled", "Compiled for the CPU", ran["trace"], lambda: [tables.graph_breaks(ran["trace"])]),
        ("sweep", "Throughput", ran["sweep"], lambda: [figures_sweep.sweep(sweep_points(records))]),
        ("launches", "Launches", data.launches, lambda: launches.blocks(data.launches)),
        ("evidence", "Evidence", True, lambda: _evidence(data)),
        ("skipped", "What did not run, and why", True, lambda: [_skipped(data)]),
        ("notes", "Caveats and open points", True, lambda: [_list(notes)]),
        ("timeline", "When it ran", True, lambda: [_timeline(data), _notebooks(data)]),
        ("environment", "Environment", True, lambda: [tables.facts(_provenance(data))]),
        ("parameters", "Parameters", True, lambda: [tables.facts(data.info["parameters"], ("Parameter", "Value"))]),
    ]
    return [Section(name, title, make()) for name, title, wanted, make in parts if wanted]


def _ran(data: RunData) -> list[Record]:
    return [r for r in data.probes if r.status in words.RAN]


def _list(items: list[str]) -> Block:
    if not items:
        return paragraph("None.")
    body = Markup("").join(Markup("<li>{}</li>").format(item) for item in items)
    return Block(str(Markup("<ul>{}</ul>").format(body)), "\n".join(f"- {item}" for item in items))


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
            inner = tables.evidence(group, data.asked, data.verdict["records"])
            heading = Block(str(Markup("<h3>{}</h3>").format(title)), title)
            blocks.append(details(f"{title} ({len(group)})", inner) if folded else heading + inner)
    return blocks


def _skipped(data: RunData) -> Block:
    return tables.skipped(data.skipped, data.asked) if data.skipped else paragraph("Everything that was planned ran.")


def _timeline(data: RunData) -> Block:
    return figures.timeline([r for r in data.records if r.kind != "launch"])


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
