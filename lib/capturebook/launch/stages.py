"""The stages of a launch, each proven before the next, and how a launch ends at one that does not hold."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from . import classes
from .channel import ChannelError
from .host import Refused

STAGES = ("connect", "folder", "deliver", "syntax", "environment", "port", "start", "identity", "log", "ready", "end")


def asked(did: str, serves: bool) -> tuple[str, ...]:
    """The stages that are part of what is done with a launch (`did`, as in its record), for a server or a script."""
    last = "ready" if serves else "end"
    return {
        "launch": (*STAGES[:-2], last),
        "attach": ("connect", "folder", "identity", "log", last),
        "load": ("connect", "folder", "ready"),
        "stop": ("connect", "folder", "end"),
    }[did]


class NotHeld(Exception):
    """A stage does not hold. `status` is the record's; `klass` is C1 to C18 where one fits; `todo` what to do."""

    def __init__(self, seen: str, klass: str = "", todo: str = "", status: str = "not_run", **evidence):
        super().__init__(seen)
        self.seen = " ".join(seen.split())
        self.klass = klass
        self.todo = todo or (classes.todo(klass) if klass else "")
        self.status = status
        self.evidence = evidence


@dataclass
class Stage:
    """One stage as recorded. `at` and `seconds` are seconds, `at` since the launch began."""

    name: str
    state: str
    at: float
    seconds: float
    evidence: dict = field(default_factory=dict)
    seen: str = ""


class Stages:
    """The stages so far, shown as they end. `on_event` gets one line of text for each."""

    def __init__(self, on_event: Callable[[str], None]):
        self._began = time.monotonic()
        self._on_event = on_event
        self.done: list[Stage] = []

    @property
    def reached(self) -> str:
        """The stage that was entered last, "" for none."""
        return self.done[-1].name if self.done else ""

    def say(self, text: str) -> None:
        self._on_event(text)

    @contextmanager
    def stage(self, name: str, lost: str = "C5") -> Iterator[dict]:
        """Run one stage; what its block puts into the yielded dict is its evidence.

        A host that does not answer becomes NotHeld of class `lost`, a connection that ended of C5, what the host
        refused of C11.
        """
        evidence: dict = {}
        began = time.monotonic()
        entry = Stage(name, "entered", round(began - self._began, 3), 0.0, evidence)
        self.done.append(entry)
        try:
            yield evidence
            entry.state = "held"
            shown = ", ".join(f"{key} {_short(value)}" for key, value in evidence.items() if _shown(value))
            self.say(f"{name:<11} held{': ' if shown else ''}{shown}")
        except (ChannelError, Refused) as exc:
            entry.state, entry.seen = "failed", str(exc)
            silent = str(exc).startswith("no answer")
            raise NotHeld(str(exc), "C11" if isinstance(exc, Refused) else lost if silent else "C5") from exc
        except NotHeld as exc:
            entry.state, entry.seen = "failed", exc.seen
            evidence.update(exc.evidence)
            raise
        finally:
            entry.seconds = round(time.monotonic() - began, 3)

    def as_dicts(self, names: tuple[str, ...]) -> list[dict]:
        """The stages that were entered, in their order, then those of `names` that were not, as such."""
        entered = [asdict(stage) for stage in self.done]
        seen = {stage.name for stage in self.done}
        return entered + [{"name": name, "state": "not entered"} for name in names if name not in seen]


def _shown(value) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


def _short(value) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
