"""The three controls: what each must show, and what it means for a run when one does not."""

from dataclasses import dataclass

from ..records import Arm, Record
from . import evidence as ev
from .evidence import Evidence, Need

MODULE = "capturebook.subjects.controls"
CONTROL_ARM = Arm(variant="control", warmup="warm1")

EXPECTED = {
    "trivial": ("pass", None, "a trivial capture must pass"),
    "planted_item": ("fail", 900, "a planted .item() in a capture must fail with 900"),
    "baked_scalar": ("wrong", None, "a planted baked scalar must come out wrong"),
}
"""Control: (status, CUDA code at the root, why)."""


@dataclass(frozen=True)
class Controls:
    """state: ok, missing (not run), cuda (failed with a CUDA error), misbehaved, contradict. `said`: one line each."""

    state: str
    said: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    needs: tuple[Need, ...] = ()


def examine(evidence: Evidence) -> Controls:
    """What this run's controls showed. Repeats must agree; a repeat that did not run takes nothing back."""
    said: dict[str, list[str]] = {"contradict": [], "missing": [], "cuda": [], "misbehaved": []}
    records: list[Record] = []
    unseen: dict[str, list[str]] = {}
    needs = []
    for name, (status, code, why) in EXPECTED.items():
        found = evidence.controls(name)
        conclusive = [r for r in found if r.status in ev.CONCLUSIVE]
        records += conclusive
        if not conclusive:
            reason = "; ".join(dict.fromkeys(f"{r.status}, {r.reason}" for r in found)) or "no record"
            unseen.setdefault(reason, []).append(name)
            needs.append(Need("control", CONTROL_ARM, why, control=name))
        elif len({ev.outcome(r) for r in conclusive}) > 1:
            shown = " / ".join(sorted({_short(r) for r in conclusive}))
            said["contradict"].append(f"control {name}: its records contradict each other ({shown})")
        elif not _behaves(conclusive[0], status, code):
            kind = "cuda" if conclusive[0].root and conclusive[0].root.code else "misbehaved"
            said[kind].append(f"control {name}: {_short(conclusive[0])}, but {why}")
    said["missing"] = [f"control{'s' * (len(names) > 1)} {', '.join(names)}: {why}" for why, names in unseen.items()]
    for state, lines in said.items():
        if lines:
            return Controls(
                state, tuple(line for group in said.values() for line in group), tuple(records), tuple(needs)
            )
    return Controls("ok", (), tuple(records))


def _behaves(record: Record, status: str, code: int | None) -> bool:
    return record.status == status and (code is None or (record.root is not None and record.root.code == code))


def _short(record: Record) -> str:
    root = record.root
    return f"{record.status} with {root.code or root.type}" if root else record.status
