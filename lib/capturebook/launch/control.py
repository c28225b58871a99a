"""Attach to a launch, or stop it: by its id, from any process on this machine."""

from collections.abc import Callable

from ..chain.folder import stamp
from ..records import Record
from .channel import Channel
from .follow import GRACE, Following
from .host import Host, Refused
from .outcome import Outcome, record_of
from .redact import Redactor
from .stages import NotHeld, Stages
from .store import Entry


def attach(name: str, on_event: Callable[[str], None] = print, show: Callable[[str], None] | None = None) -> Record:
    """Follow a launch, whoever started it, until it is ready or has ended, and record that.

    `show` gets the program's lines (redacted) once it is reached. Raises LaunchError for an unknown id.
    """
    return _Attached(Entry.open(name), on_event).run(show)


def stop(name: str, on_event: Callable[[str], None] = print, grace: float = GRACE) -> Record:
    """End a launch's program and its descendants: SIGTERM, and SIGKILL after `grace` seconds.

    It goes by the process and start time that the launch's own folder on the host recorded, never by a name.
    """
    return _Attached(Entry.open(name), on_event).stop(grace)


class _Attached:
    def __init__(self, entry: Entry, on_event: Callable[[str], None]):
        self.entry = entry
        self.redactor = Redactor(entry.info["file"]["secret"])
        self.stages = Stages(lambda text: on_event(self.redactor.text(text)))
        self.caveats: list[str] = []
        self.started = stamp()

    def run(self, show) -> Record:
        return self._with_host(lambda following: following.run(show))

    def stop(self, grace: float) -> Record:
        return self._with_host(lambda following: self._stop(following, grace))

    def _with_host(self, act) -> Record:
        following, host = None, None
        try:
            with self.stages.stage("connect") as evidence:
                host = Host(Channel(self.entry.info["host"]))
                facts = host.facts()
                evidence["system"] = facts.system
                self.redactor.at(facts.home)
            with self.stages.stage("folder") as evidence:
                self._folder(host, evidence)
            following = Following(self.entry, host, self.stages, self.redactor, self.caveats)
            outcome = act(following)
        except NotHeld as exc:
            outcome = following.failed(exc) if following else Outcome.of(exc)
            if following:
                self.entry.update(state="ended")
        finally:
            if host:
                (following.host if following else host).channel.close()
        return record_of(self.entry, self.stages, outcome, self.caveats, self.started, self.redactor)

    def _folder(self, host: Host, evidence: dict) -> None:
        """The launch's own folder, by its nonce; what was never started has none, or one without a keeper."""
        info = self.entry.info
        nothing = "nothing was started: its launcher ended before the start"
        if info["folder"] is None or info["resolved"] is None:
            raise NotHeld(nothing, "C5", "launch it again")
        try:
            state = host.poll(info["folder"], 0)
        except Refused as exc:
            raise NotHeld(f"the launch's folder is gone: {exc}", "C11") from None
        if state.nonce != info["nonce"]:
            raise NotHeld(f"the folder's nonce is {state.nonce!r}, not this launch's", "C8")
        if state.program is None:
            raise NotHeld(nothing, "C5", "launch it again")
        evidence["nonce"] = "this launch's"

    def _stop(self, following: Following, grace: float) -> Outcome:
        with self.stages.stage("end") as evidence:
            before = following.poll()
            evidence["before"] = "running" if not before.ended else "had ended by itself"
            state = following.end_program(grace)
            evidence["exit"] = following.how()
            evidence["left"] = state.exit.get("left", "")
        self.entry.update(state="ended")
        done = "it had ended before" if before.ended else "stopped by its recorded process"
        return Outcome(
            "pass", f"{done}: {following.how()}", payload={**following.payload(), "stopped": not before.ended}
        )
