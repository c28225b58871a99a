"""Run the gallery: many cases at a time through one pool, each decided as soon as its own probes allow."""

import signal
import time

from ..chain.folder import RunFolder
from ..probes import ProbePool
from ..records import Record, latest
from .case import Case
from .evaluate import Asked, with_repaired

ACTIVE = 40
"""Cases under way at a time: enough to keep a pool busy, few enough that a run that is cut off has decided most."""


class OutOfTime(Exception):
    """The run's own time limit is over."""


class GalleryRun:
    """A run of the gallery on disk: one RunFolder, whose plan names each case's probes, and gallery.json.

    `known` holds the records by probe; cases that ask for the same probe share it. `results` are those of the cases
    that are decided, in the order in which they were.
    """

    def __init__(self, run: RunFolder, cases: list[Case], say):
        self.run, self.say = run, say
        self.waiting = [Asked.of(case, run.nonce) for case in with_repaired(cases)]
        self.active: list[Asked] = []
        self.asked: list[Asked] = []
        self.known: dict[str, Record] = {}
        self.results: list[dict] = []

    def pursue(self, parallel: int = 0, limit: float = 0.0) -> None:
        """Until every case is decided. Raises OutOfTime after `limit` seconds (0: none); what was recorded is kept."""
        began = time.monotonic()
        before = signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            with ProbePool(self.run, parallel, on_event=lambda text: None) as pool:
                while batch := self._batch():
                    at = time.monotonic() - began
                    self.say(f"{at:5.0f} s  {len(self.results)} cases decided, {len(batch)} probes next")
                    for record in pool.run(batch):
                        self.known[record.probe] = record
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._take_what_ended()
            self.save()

    def _batch(self) -> list:
        """What all cases under way need next, compiled arms first; cases that need nothing more are decided."""
        wanted: dict = {}
        while not wanted and (self.active or self.waiting):
            self.active += self._next(ACTIVE - len(self.active))
            for asked in list(self.active):
                missing = self._missing(asked)
                wanted |= {p.id: p for p in missing}
                if not missing:
                    self._decided(asked)
        self.save()
        return sorted(wanted.values(), key=lambda p: p.arm.compile == "none")

    def _missing(self, asked: Asked) -> list:
        """What one case needs that no case has recorded; what another one has is taken from there."""
        while probes := asked.wants(self.known):
            asked.probes |= {p.id: p.role for p in probes}
            if missing := [p for p in probes if p.id not in self.known]:
                return missing
        return []

    def _next(self, count: int) -> list[Asked]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        self.asked += taken
        return taken

    def _decided(self, asked: Asked) -> None:
        self.active.remove(asked)
        result = asked.result(self.known)
        self.results.append(result)
        self.say(line(result))

    def _take_what_ended(self) -> None:
        """After a cut: records that the pool wrote before it, and cases that they decide."""
        self.known |= latest([r for r in self.run.records()[0] if r.kind == "step"])
        for asked in list(self.active):
            if asked.records(self.known) and not asked.wants(self.known):
                self._decided(asked)

    @property
    def unfinished(self) -> list[str]:
        return [asked.case.id for asked in (*self.active, *self.waiting)]

    def save(self) -> None:
        self.run.info["plan"] = [{"case": a.case.id, "probes": a.probes} for a in self.asked]
        self.run.save()
        self.run.write_json("gallery.json", {"results": self.results, "unfinished": self.unfinished})


def line(result: dict) -> str:
    """One result as a line: whether it is what is known, and what it is if not."""
    mark = "ok   " if result["ok"] else "WRONG"
    got = " ".join(str(v) for v in result["got"].values() if v)
    wanted = "" if result["ok"] else f", expected {' '.join(str(v) for v in result['expected'].values() if v)}"
    return f"{mark}  {result['case']:<34} {got}{wanted}  ({result['probes']} probes, {result['seconds']} s)"


def _out_of_time(*_) -> None:
    raise OutOfTime
