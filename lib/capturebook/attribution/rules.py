"""The decision procedure: rules in order, the first that fits wins.

Each row gives the rule's number in the design, what it concludes, and the condition under which it does. A condition is
asked of the failing arm and names, by itself, the probes it still needs; a rule that is open stops the search, since
an earlier rule that is not refuted forbids a later one. Rules of owner `kernel` end in `subjects_own` (principle 5).
"""

from dataclasses import dataclass

from ..records import Record
from . import evidence as ev
from . import symptoms as s
from .conditions import (
    NO,
    YES,
    Answer,
    Case,
    Condition,
    all_of,
    any_of,
    beside,
    gone_without_env,
    gone_without_settings,
    other_threads,
    own_call_broke_it,
    passes,
    recorded,
    reference_agrees,
    seen,
    subjects_own,
    twin,
)


@dataclass(frozen=True)
class Rule:
    """One row. `cls` is None where an owner is known without a class, or where nothing can be decided."""

    number: str
    cls: str | None
    owner: str
    says: str
    when: Condition


@dataclass(frozen=True)
class Finding:
    """What the table says of one arm. Undetermined: `open` says why, `needs` lists the probes that would help."""

    cls: str | None
    owner: str
    says: str
    records: tuple = ()
    needs: tuple = ()
    open: tuple[str, ...] = ()
    number: str = ""


def is_compiled(case: Case) -> Answer:
    return YES if case.compiled else NO


def not_compiled(case: Case) -> Answer:
    return NO if case.compiled else YES


uncompiled_passes = passes(Case.uncompiled, "is compile needed for the failure?")
uncompiled_is_wired_wrong = beside(
    Case.uncompiled,
    lambda case, r: s.wiring(r) and s.root_code(r) == s.root_code(case.record),
    "is compile needed for the failure?",
)
warm = passes(
    lambda case: case.arm.changed(warmup="warm2", stream="capture", thread="capture"),
    "is it gone once this thread and stream ran the step?",
)
uncaptured_passes = passes(lambda case: case.arm.changed(capture="none"), "is the capture needed for the failure?")
eager_gets_through = beside(
    Case.uncompiled,
    lambda case, r: r.status == "pass" or not ev.failed_before_capture(r),
    "does the eager step run at all?",
    "the eager step fails too, before any capture",
)
without_trees_passes = passes(lambda case: case.arm.changed(compile="default"), "does it pass without cudagraph trees?")
twin_fails_before_capture = beside(
    twin,
    lambda case, r: ev.failed_before_capture(r),
    "does the compiler fail on the twin too?",
    "the compiler fails on the step but not on its twin",
)
twin_is_wrong = beside(twin, lambda case, r: r.status == "wrong", "is the twin wrong too in this arm?")
operators_hold = recorded(
    "a check of every custom operator of the step (effective.opcheck)",
    lambda r: r.effective.get("opcheck"),
    lambda found: all(v == "ok" for v in found.values()),
)
changes_unsaid = seen(lambda r: s.undeclared_change(r) or s.operator_writes_unsaid(r))
same_twice = recorded(
    "two eager runs from the same state (effective.deterministic)", lambda r: r.effective.get("deterministic"), bool
)
tuning_is_to_blame = all_of(
    seen(lambda r: r.counts.get("autotune", 0) > 0 and r.arm.tuning == "live"),
    passes(lambda case: case.arm.changed(tuning="pinned"), "is it right with the tuning pinned?"),
)
nothing_missing = recorded(
    "kernels of the graph against an eager run (graph.missing)", lambda r: r.graph.get("missing"), lambda m: not m
)
kernels_missing = seen(lambda r: bool(r.graph.get("missing")))
same_call_passes = recorded(
    "whether the captured call passes once it ran before (payload.frozen_advance_passes)",
    lambda r: r.payload.get("frozen_advance_passes"), bool,
)  # fmt: skip


def ran_there(record: Record) -> bool:
    """The warm-up ran the step on the capture's own stream and thread."""
    return not ev.cold(record.arm) and (record.arm.stream, record.arm.thread) == ("capture", "capture")


def not_a_first_use(case: Case) -> Answer:
    """The error is not gone once this thread and stream ran the same call: then something was set up there, by whom
    nothing tells. That a cold arm needs to be cold is asked by `subjects_own`."""
    gone = "it is gone once this thread and stream ran the step, and nothing says what was used there first"
    if ev.cold(case.arm):
        return YES
    if ran_there(case.record):
        passed = case.record.payload.get("frozen_advance_passes")
        return Answer("no", note=gone) if passed else YES
    answer = warm(case)
    if answer.value == "open":
        return answer
    return Answer("no", answer.records, note=gone) if answer.value == "yes" else Answer("yes", answer.records)


def settings_set(case: Case) -> Answer:
    return YES if any(ev.suspects(case.record).values()) else NO


RULES = (
    Rule(
        "0", "B7", "environment", "it fails only with an allocator, debug or profiler setting",
        all_of(settings_set, gone_without_settings),
    ),
    Rule(
        "1", "B3", "stack", "Inductor's cudagraph trees record or replay inside the outer capture",
        all_of(is_compiled, seen(s.trees_in_capture)),
    ),
    Rule(
        "1", "B3", "stack", "an output of a cudagraph tree was overwritten by a later run",
        all_of(is_compiled, any_of(
            seen(s.tree_output_overwritten),
            all_of(
                seen(lambda r: s.wrong(r) and r.arm.capture == "none" and bool(r.effective.get("trees_manager"))),
                without_trees_passes,
            ),
        )),
    ),
    Rule("2", "B1", "stack", "torch.compile compiled or recompiled inside the capture", seen(s.compile_in_capture)),
    Rule(
        "3", "K1", "kernel", "the kernel's autotune benchmarked inside the capture",
        all_of(seen(s.users_tuning), subjects_own),
    ),
    Rule(
        "3", "B2", "stack", "Inductor tuned its own kernels inside the capture",
        all_of(seen(s.inductors_tuning), seen(lambda r: not s.users_tuning(r))),
    ),
    Rule(
        "4", "B4", "stack", "a CUDA library was used for the first time inside the capture",
        all_of(
            seen(s.library_status),
            any_of(
                all_of(seen(lambda r: not ran_there(r)), warm),
                all_of(seen(ran_there), same_call_passes),
            ),
        ),
    ),
    Rule(
        "5", "K3", "kernel", "the step's own streams are wired wrongly: it touches work outside the capture",
        all_of(
            seen(s.wiring),
            any_of(not_compiled, uncompiled_is_wired_wrong),
            subjects_own,
        ),
    ),
    Rule(
        "5", "B5", "stack",
        "torch.compile drops the step's stream code, so what is left meets a stream outside the capture",
        all_of(is_compiled, seen(s.wiring), uncompiled_passes),
    ),
    Rule(
        "5", "B5", "stack", "torch.compile drops the step's stream code; its compiled part is refused in the capture",
        all_of(
            is_compiled,
            seen(lambda r: (s.root_code(r) == 900 and s.refused(r) or s.copy_error(r)) and s.in_compiled_code(r)),
            uncompiled_passes,
        ),
    ),
    Rule(
        "6", "K2", "kernel", "the step synchronises with the host, copies pageable memory or calls a generator",
        all_of(seen(lambda r: s.refused(r) and s.subjects_frame(r)), subjects_own),
    ),
    Rule(
        "6", None, "kernel", "the step raised an error of its own while capturing",
        all_of(seen(s.python_error), not_a_first_use, subjects_own),
    ),
    Rule(
        "7", "B6", "environment", "another thread used CUDA while the capture was open",
        all_of(seen(ev.lone_901), other_threads),
    ),
    Rule(
        "7", "K2", "kernel", "the step made a call that no capture allows, and went on without its error",
        all_of(seen(ev.lone_901), own_call_broke_it, subjects_own),
    ),
    Rule(
        "8", "B7", "environment", "it fails only with a variable that the arm sets",
        gone_without_env,
    ),
    Rule(
        "9", "K5", "kernel", "it is wrong before any replay, or changes an input that it does not declare",
        all_of(
            seen(lambda r: s.wrong_before_replay(r) or s.undeclared_change(r)),
            any_of(
                not_compiled,
                seen(s.operator_writes_unsaid),
                beside(Case.uncompiled, lambda case, r: r.status == "wrong", "is it wrong uncompiled too?"),
            ),
            any_of(changes_unsaid, same_twice, tuning_is_to_blame),
            reference_agrees,
            subjects_own,
        ),
    ),
    Rule(
        "9", None, "undetermined", "the step is not deterministic: plain calls from the same state do not agree",
        seen(s.differs_by_itself),
    ),
    Rule(
        "9", "B8", "stack", "a right step comes out wrong only when compiled",
        all_of(is_compiled, seen(s.wrong), uncompiled_passes, any_of(twin_is_wrong, operators_hold)),
    ),
    Rule(
        "9", "K3", "kernel", "a kernel was launched on another stream during the capture and is missing from the graph",
        all_of(seen(s.wrong_on_replay), kernels_missing, subjects_own),
    ),
    Rule(
        "9", "K6", "kernel", "it is right when called and wrong when replayed with changed inputs",
        all_of(seen(s.wrong_on_replay), nothing_missing, subjects_own),
    ),
    Rule(
        "9", "K6", "kernel", "it reads or writes memory on replay that is no longer its own",
        all_of(seen(s.illegal_address_on_replay), uncaptured_passes, subjects_own),
    ),
    Rule(
        "10", "K4", "kernel", "the step is not registered with torch.compile, or breaks its schema",
        all_of(
            is_compiled,
            seen(lambda r: s.not_compilable(r) or s.operator_described_wrong(r)),
            eager_gets_through,
            subjects_own,
        ),
    ),
    Rule(
        "10", "B9", "stack", "the compiler fails on a step that is right",
        all_of(is_compiled, seen(s.compiler_error), eager_gets_through, twin_fails_before_capture),
    ),
)  # fmt: skip


def find(case: Case) -> Finding:
    """The first rule that fits a failing arm; undetermined where one is open, or none fits."""
    notes = []
    records: tuple[Record, ...] = ()
    for rule in RULES:
        answer = rule.when(case)
        # A rule that was refuted by another arm's record is part of the proof of the one that fits.
        records += answer.records
        if answer.value == "yes" and rule.owner == "undetermined":
            return Finding(None, rule.owner, rule.says, open=(rule.says,), number=rule.number)
        if answer.value == "yes":
            return Finding(rule.cls, rule.owner, rule.says, records, number=rule.number)
        if answer.value == "open":
            said = tuple(need.text() for need in answer.needs) or (answer.note,)
            return Finding(
                None, "undetermined", f"rule {rule.number} ({rule.cls or rule.owner}) is not decided",
                needs=answer.needs, open=said, number=rule.number,
            )  # fmt: skip
        if answer.note:
            notes.append(f"{rule.cls or 'the step itself'}: {answer.note}")
    return Finding(None, "undetermined", "no class fits", open=(_no_class(case), *notes))


def _no_class(case: Case) -> str:
    record, root = case.record, ev.root_of(case.record)
    if s.died(record):
        return f"no class fits: the process ended by itself inside the step ({record.reason})"
    if broken := ev.breach(record):
        return f"no class fits: the step breaks its contract: {_first_line(broken.text)}"
    if root and record.stage == "build":
        return f"no class fits: the step cannot be built {_told(root)}"
    if ev.failed_before_capture(record) and not case.compiled:
        return f"no class fits: the eager step fails before any capture {_told(root)}"
    if root is None:
        return f"no class fits: {record.status}: {record.reason}".removesuffix(": ")
    where = f"{root.code} {root.name}" if root.code else root.type
    return f"no class fits: {where} at {record.stage}"


def _told(root) -> str:
    """An error, and the subject's line that it came from."""
    mine = [f" at {frame.file}:{frame.line}" for frame in root.frames if frame.tag == "subject"]
    return f"({root.type}: {_first_line(root.text)}){''.join(mine[-1:])}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]
