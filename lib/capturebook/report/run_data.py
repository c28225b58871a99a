"""A run folder as the report reads it, with its verdict computed anew from the records."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .. import attribution, doctor, paths
from ..attribution.decision import Decision
from ..files import read_object
from ..params import Params
from ..records import Arm, Record, latest, read
from .readable import unreadable

SAMPLE = "outputs/h200"
"""Where the repository keeps the genuine run on an H200, relative to its root."""

MEASURING = {"01": "builds", "04": "throughput", "build": "builds", "tune": "throughput"}
"""What the notebooks (by their numbers) and commands are for that ask nothing about capture."""

BUILT_IN = Params.model_fields["subject"].default
"""The subject that the workbook comes with."""

MADE_WITH = ("options", "heads", "cache", "env", "preload")
"""Parameters that make another step of the same subject, or run it elsewhere than in the plain process."""


@dataclass(frozen=True)
class RunData:
    """run.json as `info`, hypothesis.json, all records as `whole`, the last of each probe as `records`."""

    path: Path
    info: dict
    hypothesis: dict
    whole: list[Record]
    records: list[Record]
    aside: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path) -> "RunData":
        """Raises FileNotFoundError or ValueError naming the file that is missing or damaged."""
        info, hypothesis = _json(path / "run.json"), _json(path / "hypothesis.json")
        if lost := [name for name in ("title", "story", "arms", "rivals") if name not in hypothesis]:
            raise ValueError(f"{paths.shown(path / 'hypothesis.json')} is damaged: it holds no {lost[0]!r}")
        whole, aside = read(path / "records.jsonl")
        mine = [r for r in whole if r.nonce == info["nonce"]]
        aside += [f"record {r.probe} carries another run's nonce; it does not count" for r in whole if r not in mine]
        found = {id(r): said for r in mine if (said := unreadable(r))}
        aside += [
            f"{r.kind} record {r.probe} is damaged, {found[id(r)]}; it is set aside" for r in mine if id(r) in found
        ]
        shown = latest([r for r in mine if id(r) not in found])
        return cls(path, info, hypothesis, whole, list(shown.values()), aside)

    @cached_property
    def judged(self) -> attribution.Verdict:
        return attribution.judge(self.info, self.hypothesis, self.whole)

    @cached_property
    def verdict(self) -> dict:
        """What attribution says of the records: owner, class, root, fix and the rest, as plain data."""
        return self.judged.to_json()

    @cached_property
    def finding(self) -> str:
        """The finding behind the verdict, in a few words."""
        return Decision(self.info, self.whole).finding.says

    @cached_property
    def conclusions(self) -> list[str]:
        """What the arms show beyond the verdict, a sentence each."""
        return attribution.explain(self.judged, self.hypothesis, self.records)[1:]

    @property
    def asked(self) -> Arm:
        """The arm that the verdict is about."""
        return Arm(**self.verdict["question"]["arm"])

    @property
    def subject(self) -> str:
        """What is probed, as the parameters name it: FILE.py:BUILD or package.module:BUILD."""
        return self.info["parameters"].get("subject") or BUILT_IN

    @property
    def matter(self) -> tuple:
        """Subject and what it is made and run with, hypothesis and question: runs that share them speak of the same."""
        made_with = [self.info["parameters"].get(name) or None for name in MADE_WITH]
        return self.subject, made_with, self.hypothesis.get("name"), self.hypothesis["title"], self.info["question"]

    @property
    def gpu(self) -> str:
        """Name of the GPU the run had, or "" for none."""
        return ((self.info.get("provenance") or {}).get("gpu") or {}).get("name") or ""

    @property
    def unusable(self) -> str:
        """Why no probe of this run could use a GPU; "" when one could."""
        return doctor.unusable(self.info["provenance"])

    @property
    def decided(self) -> bool:
        return self.verdict["owner"] not in ("not_run", "undetermined")

    @property
    def notebooks(self) -> list[str]:
        """The notebooks that the run was asked for; of a run that did not note them, those with a record, sorted."""
        noted = {name for one in self.info.get("invocations", []) for name in one.get("notebooks", [])}
        return sorted(noted or {r.notebook for r in self.records if r.notebook and r.kind != "launch"})

    @property
    def commands(self) -> list[str]:
        """The commands that noted that they made the run, without a notebook: build, tune."""
        return sorted({one["command"] for one in self.info.get("invocations", []) if "command" in one})

    @property
    def purpose(self) -> str:
        """What a run was for to which no question of capture was put: builds, throughput, or both. "" of any other."""
        parts = {name[:2] for name in self.notebooks} | set(self.commands)
        if not parts <= set(MEASURING) or any(r.kind == "step" for r in self.records):
            return ""
        return " and ".join(dict.fromkeys(MEASURING[part] for part in sorted(parts)))

    @property
    def stopped(self) -> str:
        """What stopped the run before its end, such as Ctrl-C; "" when nothing did."""
        invocations = self.info.get("invocations")
        return invocations[-1].get("stopped", "") if invocations else ""

    @property
    def probes(self) -> list[Record]:
        """All but the notebooks' own records and launches."""
        return [r for r in self.records if r.kind not in ("notebook", "launch")]

    @property
    def launches(self) -> list[Record]:
        """What was started for this run here or over SSH (see capturebook.launch)."""
        return [r for r in self.records if r.kind == "launch"]

    @property
    def skipped(self) -> list[Record]:
        return [r for r in self.probes if r.status in ("skipped", "not_run")]


def _json(path: Path) -> dict:
    if not path.is_file():
        raise FileNotFoundError(f"{paths.shown(path.parent)} holds no {path.name}; it is not a run folder")
    return read_object(path)


def sample_run(about: RunData) -> RunData | None:
    """The genuine H200 run kept in the repository, if it asked the same question about the same subject.

    None where there is none, where it asked another question, where none was asked, or where it is the run reported.
    """
    path = paths.resolve(SAMPLE)
    if about.purpose or not (path / "run.json").is_file() or path == about.path.resolve():
        return None
    sample = RunData.open(path)
    return sample if sample.matter == about.matter else None
