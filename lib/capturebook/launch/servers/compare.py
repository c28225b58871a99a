"""Run a comparison: each arm launched, asked for work, stopped; then every rival's predictions against what came."""

import secrets
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from ... import paths
from ...attribution.scores import CONTRADICTED, HELD, NOT_TESTED, RivalScore, ScoreRow, short
from ...chain.runfiles import write_json
from ...records import Record, append
from ..control import stop
from ..launcher import launch
from ..redact import Redactor
from ..store import beside
from ..sweeping import sweep
from .comparison import Comparison, ServerPrediction

CONCLUSIVE = ("pass", "fail")
"""A launch that did not run, or was not ready in time, supports nothing; nor does one that failed by a C class."""


UNREACHED = ("connect", "folder")
"""Stages in which no arm can differ from another: where one of them does not hold, the rest need not be tried."""


@dataclass
class Tried:
    """One launch of one arm: its record, and the record of its load if it got ready and one was asked."""

    arm: str
    round: int
    launched: Record
    swept: Record | None = None

    @property
    def conclusive(self) -> bool:
        return self.launched.status in CONCLUSIVE and not self.launched.payload["class"]

    @property
    def unreached(self) -> bool:
        return self.launched.payload["failed_stage"] in UNREACHED

    @property
    def tokens_per_s(self) -> dict[int, float]:
        """Concurrency -> tokens/s; empty without a sound load."""
        rows = self.swept.payload["sweep"] if self.swept and self.swept.status == "pass" else []
        return {row["concurrency"]: row["tokens_per_s"] for row in rows}


@dataclass
class Compared:
    """What came of a comparison. `path` is its folder: comparison.json and records.jsonl; `redactor` knows the arms'
    secrets."""

    comparison: Comparison
    path: Path
    redactor: Redactor
    tried: list[Tried] = field(default_factory=list)

    def of(self, arm: str) -> list[Tried]:
        return [one for one in self.tried if one.arm == arm]

    @property
    def stopped(self) -> str:
        """Why the rest of the launches was not tried, in words; "" when all were."""
        last = self.tried[-1].launched if self.tried and self.tried[-1].unreached else None
        planned = self.comparison.rounds * len(self.comparison.arms)
        return f"{len(self.tried)} of {planned} launches tried, the rest not: {last.reason}" if last else ""

    def ratios(self, arm: str) -> list[float]:
        """Tokens/s of an arm over the first arm's of the same round, at the largest concurrency; one for each round."""
        if self.comparison.load is None:
            return []
        most = max(self.comparison.load.concurrency)
        base = {one.round: one.tokens_per_s.get(most) for one in self.of(self.comparison.arms[0].id)}
        mine = {one.round: one.tokens_per_s.get(most) for one in self.of(arm)}
        return [mine[n] / base[n] for n in sorted(mine) if mine[n] and base.get(n)]

    def scores(self) -> list[RivalScore]:
        """Every rival's predictions, marked held, contradicted or not tested."""
        return [
            RivalScore(rival.id, rival.statement, [self._row(arm, rival.predicts[arm.id])
                                                   for arm in self.comparison.arms if arm.id in rival.predicts])
            for rival in self.comparison.rivals
        ]  # fmt: skip

    def found(self, arm: str) -> str:
        """What an arm showed, in words."""
        said = [short(one.launched) + (f" ({one.launched.payload['class']})" if one.launched.payload["class"] else "")
                for one in self.of(arm)]  # fmt: skip
        bad = [one.swept.reason for one in self.of(arm) if one.swept and one.swept.status != "pass"]
        said += [f"under load: {reason}" for reason in bad[:1]]
        ratios = self.ratios(arm)
        if ratios and arm != self.comparison.arms[0].id:
            spread = f" ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)" if len(ratios) > 1 else ""
            said.append(f"{statistics.median(ratios):.2f} times as fast{spread}")
        return ", ".join(dict.fromkeys(said)) or ("not tried" if self.stopped else "no record")

    def _row(self, arm, predicted: ServerPrediction) -> ScoreRow:
        records = [one.launched.run for one in self.of(arm.id)]
        found, mark = self.found(arm.id), self._mark(arm.id, predicted)
        return ScoreRow(arm.id, self.label(arm), arm.why, predicted.words(), found, mark, records)

    def _mark(self, arm: str, predicted: ServerPrediction) -> str:
        conclusive = [one.launched for one in self.of(arm) if one.conclusive]
        if not conclusive:
            return NOT_TESTED
        if not all(r.status == predicted.status and _code_fits(predicted, r) for r in conclusive):
            return CONTRADICTED
        if predicted.faster is None and predicted.slower is None:
            return HELD
        ratios = self.ratios(arm)
        if not ratios:
            return NOT_TESTED
        slowest, fastest = min(ratios), max(ratios)
        # All rounds must agree: one that does not is a contradiction, not an average.
        holds = (predicted.faster or 0) <= slowest and fastest <= (predicted.slower or float("inf"))
        return HELD if holds else CONTRADICTED

    def factors(self, arm) -> dict:
        """What an arm changes, as it may be shown."""
        shown = self.redactor.clean(arm.factors)
        return shown | ({"env": self.redactor.env(arm.factors["env"])} if "env" in arm.factors else {})

    def label(self, arm) -> str:
        """The same, in words."""
        factors = self.factors(arm)
        words = [f"{name}={value}" for name, value in factors.get("env", {}).items()]
        words += [f"with {word}" for word in factors.get("add", [])]
        words += [f"without {word}" for word in factors.get("drop", [])]
        return ", ".join(words) or "as in the launch file"

    def to_json(self) -> dict:
        arms = {arm.id: {"found": self.found(arm.id), "ratios": [round(r, 4) for r in self.ratios(arm.id)],
                         "launches": [one.launched.run for one in self.of(arm.id)]}
                for arm in self.comparison.arms}  # fmt: skip
        told = self.comparison.model_dump()
        told["arms"] = [arm.model_dump() | {"factors": self.factors(arm)} for arm in self.comparison.arms]
        return {
            "schema_version": 1,
            "comparison": told,
            "arms": arms,
            "rivals": [score.to_json() for score in self.scores()],
            "stopped": self.stopped,
            "rounds_done": max((one.round for one in self.tried), default=0),
        }


def compare(comparison: Comparison, host: str | None = None, on_event: Callable[[str], None] = print) -> Compared:
    """Launch every arm in turn on `host` (None: here), ask those that get ready, stop each before the next starts.

    Written as it goes to outputs/comparisons/NAME-TIME/. Raises LaunchFileError for bad input, before anything is
    started.
    """
    specs = comparison.specs()
    redactor = Redactor([name for spec in specs.values() for name in spec.secret])
    for spec in specs.values():
        spec.deliveries()
        redactor.add({**spec.env, **spec.secrets()})
        redactor.add_words(spec.command or spec.args)
    began = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    path = paths.resolve("outputs/comparisons") / f"{comparison.name}-{began}"
    path.mkdir(parents=True)
    compared = Compared(comparison, path, redactor)
    for number, arm in product(range(1, comparison.rounds + 1), specs):
        on_event(f"arm {arm}, round {number} of {comparison.rounds}")
        one = Tried(arm, number, launch(specs[arm], host, on_event))
        compared.tried.append(one)
        _keep(path, one.launched, arm, number)
        if one.launched.status == "pass" and specs[arm].result is None:
            try:
                _ask(comparison, one, on_event)
            finally:
                # The next arm needs the GPU, and perhaps the port.
                stop(one.launched.run, on_event)
            if one.swept:
                _keep(path, one.swept, arm, number)
        write_json(path / "comparison.json", compared.to_json())
        if one.unreached:
            break
    return compared


def _ask(comparison: Comparison, one: Tried, on_event: Callable[[str], None]) -> None:
    load = comparison.load
    if load:
        one.swept = sweep(
            one.launched.run, tuple(load.concurrency), load.requests, load.prompt_words, load.output_tokens,
            load.seconds, on_event,
        )  # fmt: skip


def _keep(path: Path, record: Record, arm: str, number: int) -> None:
    append(path / "records.jsonl", beside(record, path, arm=arm, round=number))


def _code_fits(predicted: ServerPrediction, record: Record) -> bool:
    return predicted.code is None or (record.root is not None and record.root.code == predicted.code)


def lines(compared: Compared) -> list[str]:
    """For people: what each arm showed, and each rival's predictions."""
    said = [compared.stopped] if compared.stopped else []
    said += [f"{arm.id} ({compared.label(arm)}): {compared.found(arm.id)}" for arm in compared.comparison.arms]
    for score in compared.scores():
        said.append(f"{score.id}: {score.held} held, {score.contradicted} contradicted, {score.not_tested} not tested")
        said += [f"  {row.arm}: {row.mark}: predicted {row.predicted}" for row in score.rows]
    if compared.comparison.load and compared.comparison.rounds == 1:
        said.append("one launch an arm: the ratios say nothing about how much a launch varies (rounds: 3 would)")
    return said
