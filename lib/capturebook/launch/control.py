"""Attach to a launch, or stop it: by its id, from any process on this machine."""

from collections.abc import Callable

from ..chain.runfiles import stamp
from ..records import Record
from . import checkout
from .ending import GRACE, end_program
from .follow import Following
from .host import Host, Refused, State
from .outcome import Outcome, record_of
from .reach import connect
from .redact import SHOWN, Redactor
from .stages import NotHeld, Stages
from .store import Entry, LaunchError
from .tailing import tail


def attach(name: str, on_event: Callable[[str], None] = print, show: Callable[[str], None] | None = None) -> Record:
    """Follow a launch, whoever started it, until it is ready or has ended, and record that. A server that was ready
    is asked again, and left alone whatever it answers.

    `show` gets the program's lines (redacted) once it is reached; with it, a server that is ready is followed on until
    it has ended, or until Ctrl-C, which leaves it as it is. Raises LaunchError for an unknown id, and for a server that
    is not ready yet and whose question holds a secret: that is not kept.
    """
    entry = Entry.open(name)
    was_ready = entry.info["state"] == "ready"
    asks = (entry.info["resolved"] or {}).get("ready") or {}
    if not was_ready and any(SHOWN in (asks.get(part) or "") for part in ("url", "body")):
        raise LaunchError(f"launch: what {entry.id} is to be asked holds a secret, which is not kept: stop it")

    def follow(following: Following, stages: Stages) -> Outcome:
        following.from_now = bool(entry.info.get("was_ready"))
        outcome = following.run(show)
        if "run" in entry.info:
            return checkout.fetch(following, outcome)
        return tail(following, outcome) if show and entry.info["state"] == "ready" else outcome

    record = connected(entry, "attach", follow, on_event, stop_on_failure=not was_ready)
    return checkout.noted(record) if "run" in entry.info else record


def stop(name: str, on_event: Callable[[str], None] = print, grace: float = GRACE) -> Record:
    """End a launch's program and its descendants: SIGTERM, and SIGKILL after `grace` seconds.

    It goes by the process and start time that the launch's own folder on the host recorded, never by a name.
    """
    return connected(Entry.open(name), "stop", lambda following, stages: _stop(following, stages, grace), on_event)


def connected(
    entry: Entry,
    did: str,
    act: Callable[[Following, Stages], Outcome],
    on_event: Callable[[str], None],
    stop_on_failure: bool = True,
) -> Record:
    """Connect to a launch's host, prove that its folder is this launch's, `act`, and append the record of that: `did`.

    A stage that does not hold ends the program too, unless told not to.
    """
    redactor = Redactor(entry.info["file"]["secret"], entry.info["nonce"])
    stages = Stages(lambda text: on_event(redactor.text(text)))
    caveats: list[str] = []
    started = stamp()
    following, host = None, None
    try:
        with stages.stage("connect") as evidence:
            host, facts = connect(entry.info["host"], redactor)
            evidence["system"] = facts.system
            redactor.at(facts.home)
        with stages.stage("folder") as evidence:
            state = _folder(entry, host, evidence)
        following = Following(entry, host, stages, redactor, caveats, attached=True)
        following.state = state
        outcome = act(following, stages)
    except NotHeld as exc:
        if following and stop_on_failure:
            outcome = following.failed(exc)
        else:
            outcome = Outcome.of(exc)
            if following and following.over:
                entry.update(state="ended")
    finally:
        if following:
            following.close()
        elif host:
            host.channel.close()
    return record_of(entry, stages, outcome, caveats, started, redactor, did)


def _folder(entry: Entry, host: Host, evidence: dict) -> State:
    """The launch's own folder, by its nonce; what was never started has none, or one without a keeper."""
    info = entry.info
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
    return state


def _stop(following: Following, stages: Stages, grace: float) -> Outcome:
    if following.state.ended:
        return _ended_before(following, stages)
    with stages.stage("end") as evidence:
        try:
            before = following.poll()
            evidence["before"] = "running" if not before.ended else "had ended by itself"
            if not before.ended:
                following.entry.note_stop()
            state = end_program(following, grace)
        except OSError:
            # Our own disk is full: what may have filled it is ended all the same.
            following.log.give_up_copy()
            end_program(following, grace)
            stages.say(f"stopped, which cannot be recorded: {following.how()}")
            raise
        evidence["exit"] = following.how()
        evidence["left"] = state.exit.get("left", "")
    following.entry.update(state="ended")
    payload = {**following.payload(), "stopped": not before.ended}
    return Outcome("pass", f"stopped by its recorded process: {following.how()}", payload=payload)


def _ended_before(following: Following, stages: Stages) -> Outcome:
    """What was recorded of a launch that has ended, or what its end shows: to stop it makes no failure a pass."""
    entry, said = following.entry, "it had ended before: "
    last = entry.verdict()
    if (entry.info["state"] != "ended" or last is None) and not entry.stopping:
        following.from_now = bool(entry.info.get("was_ready"))
        try:
            outcome = following.run()
        except NotHeld as exc:
            outcome = following.failed(exc)
        outcome.reason = said + (outcome.reason or following.how())
        outcome.payload["stopped"] = False
        return outcome
    with stages.stage("end") as evidence:
        following.poll()
        evidence.update(before="had ended by itself", exit=following.how())
    if entry.stopping:
        entry.update(state="ended")
        return Outcome("pass", said + following.how(), payload={**following.payload(), "stopped": False})
    kept = {name: last.payload[name] for name in ("points_to", "classes_of_error") if name in last.payload}
    reason = following.how() if last.status == "pass" else last.reason.removeprefix(said)
    payload = {**following.payload(), **kept, "stopped": False}
    return Outcome(last.status, said + reason, last.payload["class"], last.payload["todo"], None, last.chain, payload)
