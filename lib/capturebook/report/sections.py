"""The report's sections below the verdict: each answers one question from the run's records."""

from dataclasses import dataclass

from markupsafe import Markup

from ..measure.rows import build_rows_of, counters_of, sweep_points
from ..records import Record
from . import (
    classes,
    figures,
    figures_build,
    figures_decode,
    figures_decode_jobs,
    figures_peers,
    figures_sweep,
    figures_targets,
    launches,
    needs,
    rivals,
    summary,
    tables,
    words,
)
from .block import Block, details, heading, link, paragraph, table
from .run_data import RunData

KINDS = {
    "build": "builds",
    "interpret": "interpreted kernels",
    "trace": "traces",
    "floor": "floors",
    "sweep": "sweeps",
    "gain": "gains",
    "counters": "counters",
    "notebook": "notebooks",
    "launch": "launches",
}
"""Kinds of records beside steps, as a heading names them."""


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    parts: list[Block]


def sections(data: RunData) -> list[Section]:
    """All sections that have something to say: a machine without a GPU has no matrix of arms."""
    records, asked = data.records, data.asked
    ran = {kind: [r for r in _ran(data) if r.kind == kind] for kind in ("interpret", "trace", "sweep", "step")}
    traced = [r for r in ran["trace"] if words.traced(r)]
    compiled = [r for r in ran["trace"] if not words.traced(r)]
    captured = any(r.role != "control" and r.arm and r.arm.capture != "none" for r in ran["step"])
    steps = any(r.role != "control" for r in ran["step"])
    books = [r for r in records if r.kind == "notebook"]
    questioned = not data.purpose
    builds, hazards, notes = build_rows_of(records), data.verdict["hazards"], _notes(data)
    parts = [
        (
            "rivals",
            "Rivals: predicted and seen",
            steps or (books and questioned),
            lambda: rivals.blocks(data.hypothesis, records),
        ),
        ("needs", "What the outcome rests on", captured, lambda: _rests(data)),
        ("arms", "All arms", captured, lambda: [figures.arms_matrix(records, asked)]),
        ("hazards", "Hazards in other arms", hazards, lambda: [tables.hazards(hazards)]),
        ("build", "Kernels as compiled", builds, lambda: [figures_build.build_heat(builds)]),
        ("interpreted", "Kernels as interpreted", ran["interpret"], lambda: [tables.interpreted(ran["interpret"])]),
        ("compiled", "Compiled for the CPU", compiled, lambda: [tables.graph_breaks(compiled)]),
        ("traced", "Traced by Dynamo, as for a GPU", traced, lambda: [tables.graph_breaks(traced), _tracer(traced)]),
        ("sweep", "Throughput", ran["sweep"], lambda: _throughput(data)),
        ("launches", "Launches", data.launches, lambda: launches.blocks(data.launches)),
        ("evidence", "Evidence", _ran(data), lambda: _evidence(data)),
        ("skipped", "What did not run, and why", data.skipped, lambda: [tables.skipped(data.skipped, asked)]),
        ("notes", "Caveats and open points", notes, lambda: [_list(notes)]),
        (
            "timeline",
            "When it ran",
            books or len(_ran(data)) > 1,
            lambda: [_timeline(data), *([_notebooks(data, books)] if books else [])],
        ),
        (
            "classes",
            "What the classes mean",
            questioned,
            lambda: [details("Classes K1 to K6 and B1 to B9", classes.legend())],
        ),
        ("environment", "Environment", True, lambda: [tables.facts(_provenance(data))]),
        ("parameters", "Parameters", True, lambda: [tables.settings(data.info["parameters"], data.info["question"])]),
    ]
    return [Section(name, title, make()) for name, title, wanted, make in parts if wanted]


def _throughput(data: RunData) -> list[Block]:
    points = sweep_points(data.records)
    if any(p.get("layer") for p in points) or figures_decode_jobs.jobs(data.records):
        return [figures_decode.decode(data.records, data.gpu)]
    beside = [figures_peers.compared(points, counters_of(data.records))] if any(p.get("lists") for p in points) else []
    asked = [figures_targets.asked(points)] if figures_targets.met(points) else []
    return [figures_sweep.sweep(points), *beside, *asked]


def _notes(data: RunData) -> list[str]:
    cut = [summary.stopped(data)] if data.stopped else []
    verdict = [] if data.purpose else [*data.verdict["caveats"], *data.verdict["open"]]
    return [*cut, *verdict, *data.aside]


def _rests(data: RunData) -> list[Block]:
    told = [_list(data.conclusions)] if data.conclusions else []
    return [*told, needs.needed(data.asked, data.records)]


def _tracer(traced: list[Record]) -> Block:
    seen = traced[0].payload
    versions = ", ".join(f"{name} {seen[name]}" for name in ("torch", "triton") if name in seen)
    called = words.counted(max(r.payload["calls"] for r in traced), "call")
    return paragraph(
        f"Dynamo's trace on the CPU in {called} with other inputs, {versions}: nothing was launched, other versions "
        "trace streams otherwise, and it is no evidence for a verdict."
    )


def _ran(data: RunData) -> list[Record]:
    return [r for r in data.probes if r.status in words.RAN]


def _list(items: list[str]) -> Block:
    body = Markup("").join(Markup("<li>{}</li>").format(item) for item in items)
    return Block(str(Markup("<ul>{}</ul>").format(body)), "\n".join(f"- {item}" for item in items))


def _evidence(data: RunData) -> list[Block]:
    ran = _ran(data)
    groups = [
        ("Controls", [r for r in ran if r.role == "control"], False),
        ("Steps", [r for r in ran if r.kind == "step" and r.role != "control"], False),
        (_kinds(others := [r for r in ran if r.kind != "step"]), others, True),
    ]
    blocks = [
        paragraph(
            f"{words.counted(len(data.probes), 'probe')}: {words.tally(data.probes)}. A record counts only with this "
            "run's nonce. capturebook repro, given this folder and an id, makes a script of a failure."
        )
    ]
    for title, group, folded in groups:
        if group:
            inner = tables.evidence(group, data.asked, data.verdict["records"])
            blocks.append(details(f"{title} ({len(group)})", inner) if folded else heading(title) + inner)
    return blocks


def _kinds(records: list[Record]) -> str:
    """`Builds and sweeps`: what these records are of, in the order of KINDS."""
    there = {r.kind for r in records}
    named = words.listed([name for kind, name in KINDS.items() if kind in there] or [""])
    return named[:1].upper() + named[1:]


def _timeline(data: RunData) -> Block:
    return figures.timeline([r for r in data.records if r.kind != "launch"])


def _notebooks(data: RunData, books: list[Record]) -> Block:
    rows = []
    for r in books:
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
    return table(["Notebook", "Status", "Concluded", "s"], rows, stack=True)


def _provenance(data: RunData) -> dict:
    """What is known of machine and code; a checkout apart from git has no commit, and says nothing of one."""
    facts = {**(data.info.get("provenance") or {}), "code": data.info.get("code")}
    return {
        **{name: value for name, value in facts.items() if value not in (None, "")},
        "schema_version": data.info["schema_version"],
    }
