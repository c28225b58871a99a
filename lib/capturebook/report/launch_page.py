"""report.html of a launch's or a comparison's folder: what was launched and how it came out. Loads nothing."""

import json
from pathlib import Path

from .. import paths
from ..attribution.scores import RivalScore, ScoreRow
from ..files import write_whole
from ..records import Record, read
from . import launches
from .html import page, when


def holds_launches(path: Path) -> bool:
    """Whether a folder is a launch's or a comparison's: it holds one of their files, and no run."""
    return any((path / name).is_file() for name in ("launch.json", "comparison.json"))


def build(path: Path) -> Path:
    """Write `report.html` into the folder and return its path. Raises ValueError, one line, for one without records."""
    records, torn = read(path / "records.jsonl")
    if not records:
        raise ValueError(f"{paths.shown(path)} holds no record of a launch")
    compared = path / "comparison.json"
    made = json.loads(compared.read_text(encoding="utf-8")) if compared.is_file() else None
    out = path / "report.html"
    write_whole(out, render(path.name, records, torn, made))
    return out


def render(name: str, records: list[Record], torn: list[str], made: dict | None) -> str:
    """The page's HTML. `made` is comparison.json, None for a single launch."""
    title = made["comparison"]["title"] if made else f"Launch {records[0].payload['name']}"
    return page(
        "launches.html.j2",
        title,
        name=name,
        when=when(records[0].started),
        story=made["comparison"]["story"] if made else "",
        opening=_opening(records, made),
        scored=launches.scored(_scores(made)) if made else None,
        launches=launches.blocks(records),
        notes=torn,
    )


def _opening(records: list[Record], made: dict | None) -> list[str]:
    if made is None:
        return [launches.course(records)]
    tallies = [
        f"Rival {rival['id']} ({rival['statement']}): {rival['held']} predictions held, {rival['contradicted']} "
        f"contradicted, {rival['not_tested']} not tested"
        for rival in made["rivals"]
    ]
    if stopped := made.get("stopped"):
        return [stopped, f"What to do: {records[-1].payload['todo']}", *_found(made, {}), *tallies]
    return [*_found(made, {r.payload["arm"]: r.reason for r in records if r.status == "not_run"}), *tallies]


def _found(made: dict, because: dict[str, str]) -> list[str]:
    """A line each arm: what it showed, and why it did not run."""
    why = {arm: f": {reason}" for arm, reason in because.items()}
    return [f"Arm {arm}: {found['found']}{why.get(arm, '')}" for arm, found in made["arms"].items()]


def _scores(made: dict) -> list[RivalScore]:
    return [RivalScore(r["id"], r["statement"], [ScoreRow(**row) for row in r["rows"]]) for r in made["rivals"]]
