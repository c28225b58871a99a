"""The smallest failing set: which of a failing arm's factors it takes, and takes together, to fail as it does.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) between the failing
arm and the same arm made plain. A set of factors stands for the plain arm with those set as in the failing one.
`search` is pure: it is told what is known and says what it would have to know next, so that the plan probes several at
a time and nothing twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..records import OPTION, Arm, Record, write_option
from . import evidence as ev
from .decision import Decision
from .evidence import Need

Known = Callable[[frozenset], str | None]
"""What a set shows: "same" failure, "other" (a pass, or another root), "unclear" (no result), None: not tried yet."""


@dataclass(frozen=True)
class Found:
    """`needed` fails in the same way; `tried` maps each set that was looked at to what it showed.

    `wanted`: sets to try next. Empty when the search is over; then `minimal` says that no factor of `needed` can be
    left out, each having been left out by itself ("unclear" ones excepted: they are in `unclear`).
    """

    needed: frozenset
    tried: dict[frozenset, str]
    wanted: tuple[frozenset, ...] = ()
    unclear: frozenset = frozenset()

    @property
    def minimal(self) -> bool:
        return not self.wanted and not self.unclear


def search(factors: frozenset, known: Known) -> Found:
    """A smallest set within `factors` (which fail) that still fails in the same way.

    Round by round: leave out each factor by itself; then all that were not missed at once, or half of them, down to
    one. Nothing is assumed to be monotone: the result holds for the sets that were tried. Stops at the first round
    that asks for something unknown.
    """
    needed, tried = factors, {factors: "same"}

    def look(*sets: frozenset) -> tuple[frozenset, ...]:
        """Ask for sets together; those that are still unknown."""
        answers = {s: known(s) for s in sets if s not in tried}
        tried.update({s: answer for s, answer in answers.items() if answer is not None})
        return tuple(s for s in answers if answers[s] is None)

    while True:
        single = {name: needed - {name} for name in sorted(needed)}
        if missing := look(*single.values()):
            return Found(needed, tried, missing)
        spare = [name for name, rest in single.items() if tried[rest] == "same"]
        if not spare:
            unclear = frozenset(name for name, rest in single.items() if tried[rest] == "unclear")
            return Found(needed, tried, unclear=unclear)
        while True:
            rest = needed - frozenset(spare)
            if missing := look(rest):
                return Found(needed, tried, missing)
            if tried[rest] == "same":
                break
            # Down to one factor at last, which is known to be dispensable.
            spare = spare[: (len(spare) + 1) // 2]
        needed = rest


_PLAIN = {
    "capture": "none",
    "compile": "none",
    "stream": "capture",
    "thread": "capture",
    "fullgraph": False,
    "dynamic": None,
    "overlap": False,
    "sync": "event",
    "graph_break": "none",
    "caches": "warm",
}
"""The harmless value of a factor. What the failing arm leaves to the subject (None) stays so."""


def plain_values(record: Record, run: Mapping[str, str]) -> dict[str, object]:
    """{factor: its plain value}, for each in which the failing arm is not plain.

    None for variables, as `env:NAME`, and options, `option.NAME`: they are left out, and the subject's own stay.

    `run`: variables set for every probe of the run; those of the step's own stay as they are.
    """
    arm = record.arm
    plain = {name: value for name, value in _PLAIN.items() if getattr(arm, name) not in (None, value)}
    if arm.warmup not in ("warm2", "warm3"):
        plain["warmup"] = "warm2"
    if arm.tuning != "pinned" and _tuned(record):
        plain["tuning"] = "pinned"
    names = [f"env:{name}" for name in (*ev.libraries_own(run), *arm.env)] + [OPTION + name for name in arm.options]
    return plain | dict.fromkeys(names)


def _tuned(record: Record) -> bool:
    """A Triton autotuner of the subject's ran at some time, raw or by Inductor: else there is nothing to pin."""
    users = any(e.kind == "inductor_autotune" and e.data.get("users") for e in record.events)
    return users or record.counts.get("autotune", 0) + record.counts.get("autotune@capture", 0) > 0


def arm_of(failing: Arm, plain: dict, kept: frozenset, run: Mapping[str, str]) -> Arm:
    """The failing arm with every factor that is not `kept` at its plain value."""
    changed = {k: v for k, v in plain.items() if k not in kept and not k.startswith(("env:", OPTION))}
    options = {k: v for k, v in failing.options.items() if OPTION + k in kept}
    left_out = {k.removeprefix("env:") for k in plain if k.startswith("env:") and k not in kept}
    env = {k: v for k, v in failing.env.items() if k not in left_out}
    env |= {k: ev.undo(k) for k in left_out if k in run}
    arm = failing.changed(**changed, env=env, options=options)
    # What only means something to the compiler goes with it, so that two names of one arm are one probe.
    return ev.uncompiled(arm) if arm.compile == "none" else arm


@dataclass(frozen=True)
class Smallest:
    """The search over a run's records: what it found so far, the factors' plain values, the records it rests on."""

    found: Found
    plain: dict
    failing: Record
    records: dict[frozenset, Record]
    run: Mapping[str, str]
    """Variables set for every probe of the run."""

    def values(self, names) -> dict[str, object]:
        """What the failing arm has for each of these factors, in order."""
        arm = self.failing.arm
        held = arm.factors() | {f"env:{name}": value for name, value in {**self.run, **arm.env}.items()}
        return {name: held[name] for name in sorted(names)}

    def needs(self) -> list[Need]:
        """The arms that the search would have to know next."""
        why = "is this factor part of the smallest failing set?"
        return [Need("arm", arm_of(self.failing.arm, self.plain, kept, self.run), why) for kept in self.found.wanted]

    @property
    def minimal(self) -> bool:
        """Each needed factor was left out by itself, of the set or of the whole failing arm, and the failure was gone.

        What the sentence claims. `found.minimal` asks for it of the set alone: of a set with fewer factors than the
        failing arm that takes more arms.
        """
        without = [frozenset(self.plain) - {name} for name in self.found.needed]
        return self.found.minimal or all(self.found.tried.get(kept) == "other" for kept in without)

    def to_json(self) -> dict | None:
        """As the verdict holds it; None as long as it is not known what leaving out each factor by itself does."""
        factors = frozenset(self.plain)
        if self.found.needed == factors and self.found.wanted:
            return None
        needed = sorted(self.found.needed)
        used = [factors, self.found.needed]
        used += [factors - {name} for name in self.plain] + [self.found.needed - {name} for name in needed]
        return {
            "factors": self.values(needed),
            "plain": {name: self.plain[name] for name in needed},
            "no_part": self.values(factors - self.found.needed),
            "minimal": self.minimal,
            "unclear": sorted(self.found.unclear),
            "records": sorted({self.records[kept].probe for kept in used if kept in self.records}),
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """`905 needs capture=global and overlap=true, all together: with any one of them made plain (...) ...`"""
        root = ev.root_of(self.failing)
        what = str(root.code or root.type) if root else "The process's death"
        if self.failing.status == "wrong":
            what = "A wrong result"
        needed, spare = sorted(self.found.needed), sorted(frozenset(self.plain) - self.found.needed)
        if not needed:
            return f"{what} needs none of {_listed(self.values(spare))}: the step fails in the same way without them."
        several = len(needed) > 1
        told = f"{what} needs {_listed(self.values(needed))}{', all together' if several else ''}"
        plain = _listed({name: self.plain[name] for name in needed})
        told += f": with {'any one of them' if several else 'it'} made plain ({plain}) this failure does not come"
        if not self.minimal:
            told += f" (not shown for {', '.join(sorted(self.found.unclear) or needed)})"
        return (
            f"{told}, and {_listed(self.values(spare))} {'have' if len(spare) > 1 else 'has'} no part."
            if spare
            else f"{told}."
        )


def smallest(decision: Decision) -> Smallest | None:
    """The search as far as a run's records carry it, of the arm decided on.

    None if that did not fail, if records contradict, and for a lone 901, which comes and goes with other threads.
    """
    failing = decision.primary
    if failing is None or failing.status == "pass" or ev.lone_901(failing):
        return None
    if decision.controls.state != "ok" or decision.conflict():
        return None
    run = decision.evidence.env
    plain = plain_values(failing, run)
    if not plain:
        return None
    records: dict[frozenset, Record] = {frozenset(plain): failing}

    def known(kept: frozenset) -> str | None:
        tried = decision.evidence.of(arm_of(failing.arm, plain, kept, run), watched=True)
        found = [r for r in tried if r.status in ev.CONCLUSIVE]
        if not found:
            return "unclear" if tried else None
        if len({ev.outcome(r) for r in found}) > 1:
            return "unclear"
        records[kept] = min(found, key=lambda r: r.role == "repeat")
        if ev.outcome(found[0]) == ev.outcome(failing):
            return "same"
        # Without an option that its build needs there is no step, and nothing is seen of one.
        return "unclear" if found[0].stage == "build" else "other"

    return Smallest(search(frozenset(plain), known), plain, failing, records, run)


def _listed(values: dict[str, object]) -> str:
    """`capture=global, compile=default and NAME=1`."""
    told = []
    for name, value in values.items():
        word = str(value).lower() if isinstance(value, bool) else str(value)
        word = "unset" if value is None else write_option(value) if name.startswith(OPTION) else word
        told.append(f"{name.removeprefix('env:')}={word}")
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
