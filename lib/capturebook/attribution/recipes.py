"""What to do about each class: a sentence, and where a change of arm shows the fix, those changes in order."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..records import Arm
from ..records.settings import SETTINGS
from .evidence import TREES_VARIABLE, undo, without_variables


@dataclass(frozen=True)
class Recipe:
    """`says` is the advice; `changes` are factors to change in the failing arm, best first; none: code must change."""

    says: str
    changes: tuple[dict, ...] = ()

    def arms(self, arm: Arm, run: Mapping[str, str]) -> list[Arm]:
        """The failing arm with each change that alters it, in order. `run`: variables set for every probe of the run.

        An arm's variables go over the run's, so an arm undoes one of those by setting it to something else.
        """
        changed = [
            arm.changed(**{k: _value(v, arm, run) for k, v in change.items()})
            for change in self.changes
            if _applies(arm, change)
        ]
        return [c for i, c in enumerate(changed) if c != arm and c not in changed[:i]]


_WITHOUT_TREES = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


def _value(value, arm: Arm, run: Mapping[str, str]):
    match value:
        case "without trees":
            return _WITHOUT_TREES.get(arm.compile, arm.compile)
        case "trees off":
            # A mode with trees has them by itself; any other owes them to the variable, wherever that was set.
            set_here = TREES_VARIABLE in {**run, **arm.env}
            return (
                {**arm.env, TREES_VARIABLE: undo(TREES_VARIABLE)}
                if set_here or arm.compile not in _WITHOUT_TREES
                else arm.env
            )
        case "without settings":
            return {k: v for k, v in arm.env.items() if k not in SETTINGS}
        case "without variables":
            return without_variables(arm, run).env
    return value


def _applies(arm: Arm, change: dict) -> bool:
    """A factor of the subject's that the failing arm leaves open is not one to change."""
    return all(getattr(arm, name) is not None for name in change if name in ("overlap", "sync", "graph_break"))


RECIPES: dict[str, Recipe] = {
    "K1": Recipe(
        "Tune before the capture, for every key and dtype used in it, or pin the tuning.",
        ({"warmup": "warm2", "stream": "capture", "thread": "capture"}, {"tuning": "pinned"}),
    ),
    "K2": Recipe("Take the host synchronisation, pageable copy or generator call out of the step."),
    "K3": Recipe(
        "Fork every side stream from the capturing stream and join it; wait on nothing recorded outside the capture."
    ),
    "K4": Recipe("Register the kernel as a torch.library operator with a fake implementation, or make it traceable."),
    "K5": Recipe(
        "Declare what the kernel writes (mutates_args), and give its autotune restore_value or reset_to_zero.",
        ({"tuning": "pinned"},),
    ),
    "K6": Recipe("Keep what changes between replays in static buffers, not in Python values or fresh tensors."),
    "B1": Recipe(
        "Run the compiled step, with the shapes of the capture, before the capture begins.",
        ({"warmup": "warm2", "stream": "capture", "thread": "capture"},),
    ),
    "B2": Recipe("Run the compiled step once before the capture, so that Inductor has tuned.", ({"warmup": "warm2"},)),
    "B3": Recipe(
        "Take a compile mode without cudagraph trees (default, max-autotune-no-cudagraphs) under an outer capture.",
        ({"compile": "without trees"}, {"compile": "without trees", "env": "trees off"}),
    ),
    "B4": Recipe(
        "Touch the library once on the capture's thread and stream before the capture.",
        ({"warmup": "warm2", "stream": "capture", "thread": "capture"},),
    ),
    "B5": Recipe(
        "Keep fork, side work and join together where the compiler sees all or none of them: join by an event, or "
        "register the untraceable call that breaks the graph between them, or run the side work in line.",
        ({"sync": "event"}, {"graph_break": "none"}, {"overlap": False}),
    ),
    "B6": Recipe(
        "Capture with capture_error_mode='thread_local', or stop the threads that call CUDA meanwhile.",
        ({"capture": "thread_local"},),
    ),
    "B7": Recipe(
        "Unset the variable for this process.",
        ({"env": "without settings"}, {"env": "without variables"}),
    ),
    "B8": Recipe("Leave this step uncompiled, and report the wrong result upstream.", ({"compile": "none"},)),
    "B9": Recipe("Leave this step uncompiled, and report the compiler's error upstream.", ({"compile": "none"},)),
}
