"""Conditions on a failing arm, each answered yes, no, or open (with the probes that would answer it).

A condition is a function from a Case to an Answer; `all_of` and `any_of` combine them. The table in rules.py
is written in these words.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..records import Arm, Record
from . import evidence as ev
from .evidence import Evidence, Need


@dataclass(frozen=True)
class Case:
    """One arm whose outcome is to be explained, the record that shows it, and the evidence around it."""

    evidence: Evidence
    record: Record

    @property
    def arm(self) -> Arm:
        return self.record.arm

    @property
    def compiled(self) -> bool:
        """By the arm, or by the step itself."""
        return ev.compiled(self.arm) or ev.compiles_itself(self.record)

    def uncompiled(self) -> Arm:
        """The same use of the step without torch.compile; what calls that by itself gets a process that has it off."""
        arm = ev.uncompiled(self.arm)
        return arm.changed(env={**arm.env, **ev.COMPILER_OFF}) if ev.compiles_itself(self.record) else arm

    def plain(self) -> Arm:
        """The same use, neither compiled nor cold."""
        return self.uncompiled().changed(warmup="warm2" if ev.cold(self.arm) else self.arm.warmup)


@dataclass(frozen=True)
class Answer:
    """yes or no with the companion records it rests on, and a note where that is worth saying; open with its needs."""

    value: str
    records: tuple[Record, ...] = ()
    needs: tuple[Need, ...] = ()
    note: str = ""


YES, NO = Answer("yes"), Answer("no")
Condition = Callable[[Case], Answer]


def seen(test: Callable[[Record], bool]) -> Condition:
    """A condition that the failing record answers by itself."""
    return lambda case: YES if test(case.record) else NO


def all_of(*conditions: Condition) -> Condition:
    """yes if all are; no at the first no; what comes after an open one is not asked."""

    def together(case: Case) -> Answer:
        records: tuple[Record, ...] = ()
        for condition in conditions:
            answer = condition(case)
            records += answer.records
            if answer.value != "yes":
                return Answer(answer.value, records, answer.needs, answer.note)
        return Answer("yes", records)

    return together


def any_of(*conditions: Condition) -> Condition:
    """The first yes; else open if one is open, rather by a probe that can be run; else no with the notes."""

    def together(case: Case) -> Answer:
        answers = [condition(case) for condition in conditions]
        undecided = [answer for answer in answers if answer.value == "open"]
        found = [a for a in answers if a.value == "yes"] + sorted(undecided, key=lambda a: not a.needs)
        if found:
            return found[0]
        records = tuple(record for a in answers for record in a.records)
        return Answer("no", records, note="; ".join(a.note for a in answers if a.note))

    return together


def beside(change: Callable[[Case], Arm], test: Callable[[Case, Record], bool], why: str, note: str = "") -> Condition:
    """A condition on another arm: `change` makes it from the failing case, `test` is asked of what it showed.

    Open while that arm has no conclusive record, or records that disagree. `note` is kept when the answer is no.
    """

    def look(case: Case) -> Answer:
        arm = change(case)
        found = case.evidence.companion(arm)
        if not found:
            return Answer("open", needs=(Need("arm", arm, why),))
        if len(found) > 1:
            return Answer("open", note=f"records of {arm.label()} disagree")
        return Answer("yes", (found[0],)) if test(case, found[0]) else Answer("no", (found[0],), note=note)

    return look


def passes(change: Callable[[Case], Arm], why: str, note: str = "") -> Condition:
    return beside(change, lambda case, r: r.status == "pass", why, note)


def twin(case: Case) -> Arm:
    return ev.twin(case.arm)


def same_failure(case: Case, other: Record) -> bool:
    """The other arm ends as this one does: same status, same root."""
    return ev.outcome(other) == ev.outcome(case.record)


def subjects_own(case: Case) -> Answer:
    """Principle 5: a failure that needs cold or compiled is the kernel's only if the twin passes the same arm.

    It does not need them if the plain arm (warm, uncompiled) fails in the same way.
    """
    if not ev.cold(case.arm) and not case.compiled:
        return YES
    without = beside(Case.plain, same_failure, "does the failure need a cold or compiled step at all?")(case)
    if without.value != "no":
        return without
    note = "the twin does not pass the same arm, so the failure is not the kernel's alone"
    with_twin = passes(twin, "does the same step with torch ops instead of the kernels pass?", note)(case)
    return Answer(with_twin.value, without.records + with_twin.records, with_twin.needs, with_twin.note)


def gone_without_settings(case: Case) -> Answer:
    """The arm passes in a process without the allocator, debug and profiler settings, read back there."""
    names = tuple(sorted(ev.suspects(case.record)))
    arm = case.arm.changed(env={k: v for k, v in case.arm.env.items() if k not in names})
    found = [
        r for r in case.evidence.of(arm, roles=("scrubbed",))
        if r.status in ev.CONCLUSIVE and not any(ev.suspects(r).values())
    ]  # fmt: skip
    why = f"does it pass without {', '.join(names) or 'any setting'}?"
    if not found:
        return Answer("open", needs=(Need("scrubbed", arm, why, scrub=names),))
    if len({ev.outcome(r) for r in found}) > 1:
        return Answer("open", note="scrubbed records disagree")
    return Answer("yes" if found[0].status == "pass" else "no", (found[0],))


def gone_without_env(case: Case) -> Answer:
    """The arm passes without the variables that are set for it (`evidence.without_variables`)."""
    without = ev.without_variables(case.arm, case.evidence.env)
    if without == case.arm:
        return NO
    names = sorted(k for k in {**case.arm.env, **without.env} if case.arm.env.get(k) != without.env.get(k))
    return passes(lambda case: without, f"does it pass without {', '.join(names)}?")(case)


THREAD_TRIES = 5


def other_threads(case: Case) -> Answer:
    """The thread test: 901 in global mode, and thread_local passes 5 of 5, captures held open while threads run; or no
    mode helps, and what is captured does not matter."""
    if not case.record.effective.get("threads"):
        return Answer("no", note="a lone 901, but no thread besides the main one was seen in the probe")
    if case.arm.capture != "global":
        return _every_mode(case, ())
    records: tuple[Record, ...] = ()
    for mode, wanted in (("global", ev.lone_901), ("thread_local", lambda r: r.status == "pass")):
        arm = case.arm.changed(capture=mode)
        tried = [
            r for r in case.evidence.of(arm, roles=("repeat",))
            if r.status in ev.CONCLUSIVE and r.effective.get("threads")
        ]  # fmt: skip
        missing = THREAD_TRIES - len(tried)
        if missing > 0:
            why = f"thread test: {mode} capture held open, {THREAD_TRIES} times"
            return Answer("open", needs=tuple(Need("repeat", arm, why, repeat=i) for i in range(1, THREAD_TRIES + 1)))
        records += tuple(tried)
        good = any(map(wanted, tried)) if mode == "global" else all(map(wanted, tried))
        if not good and mode == "thread_local":
            return _every_mode(case, records)
        if not good:
            return Answer("no", records, note=f"thread test: {mode} did not tell ({len(tried)} tries)")
    return Answer("yes", records)


def _every_mode(case: Case, records: tuple[Record, ...]) -> Answer:
    """A trivial operation, captured beside the step's threads, is broken in every mode. That it passes without them the
    run's own control has shown."""
    for mode in ("global", "thread_local", "relaxed"):
        arm = case.arm.changed(capture=mode, compile="none", fullgraph=False, dynamic=None)
        found = [r for r in case.evidence.trivial if ev.same_arm(arm, r.arm) and r.status in ev.CONCLUSIVE]
        if not found:
            why = f"is a trivial capture broken by the step's threads in {mode} mode?"
            return Answer("open", needs=(Need("repeat", arm, why, trivial=True),))
        records += tuple(found)
        if not all(map(ev.lone_901, found)):
            note = f"thread test: a trivial capture beside the step's threads is not broken in {mode} mode"
            return Answer("no", records, note=note)
    return Answer("yes", records)


def own_call_broke_it(case: Case) -> Answer:
    """A lone 901 of the step's own doing: it waited in the capture, and the error was swallowed; or no other thread was
    seen, thread_local mode does not help, and a trivial capture in the step's process passes."""
    if ev.witnessed(case.record, "sync", "allocator"):
        return YES
    if case.record.effective.get("threads"):
        return NO
    why = "is it broken in a mode that other threads do not matter to?"
    note = "in thread_local mode it is not broken: a thread that Python does not know of may have done it"
    local = lambda case: case.arm.changed(capture="thread_local")  # noqa: E731
    answer = beside(local, lambda case, r: ev.lone_901(r), why, note)(case)
    if answer.value != "yes":
        return answer
    arm = case.arm.changed(compile="none", fullgraph=False, dynamic=None)
    found = [r for r in case.evidence.trivial if ev.same_arm(arm, r.arm) and r.status in ev.CONCLUSIVE]
    if not found:
        why = "does a trivial capture pass in the step's process?"
        return Answer("open", needs=(Need("repeat", arm, why, trivial=True),))
    records = answer.records + tuple(found)
    passed = all(r.status == "pass" for r in found)
    return Answer("yes" if passed else "no", records, note="" if passed else "a trivial capture is broken as well")


def reference_agrees(case: Case) -> Answer:
    """Something agrees with the reference: a later call of this record, or else the twin in the plain arm."""
    if any(check.ok for check in case.record.checks):
        return YES
    note = "the reference is wrong in every arm that was tried, the twin's too"
    arm = lambda case: ev.twin(case.plain().changed(capture="none"))  # noqa: E731
    answer = passes(arm, "does anything agree with the reference?", note)(case)
    if any(ev.generic(record) for record in answer.records):
        note = "step and reference disagree in every call, and the step has no twin to say which of them is wrong"
        return Answer("no", answer.records, note=note)
    return answer


def recorded(what: str, test: Callable[[Record], object], wanted: Callable[[object], bool]) -> Condition:
    """A reading that the probe's driver may not have taken: open, by name, where it is missing."""

    def look(case: Case) -> Answer:
        value = test(case.record)
        if value is None:
            return Answer("open", note=f"not recorded: {what}")
        return YES if wanted(value) else NO

    return look
