"""Which process the launch's program is, from /proc: pid, start time, command line, environment; and its unit."""

import shlex
import time

from .host import Refused, State
from .stages import NotHeld

WITHIN = 5.0
"""Seconds within which the keeper must have become the program."""


def prove(following, evidence: dict) -> None:
    """Prove the process of the launch that `following` follows. Raises NotHeld, C5 or C18."""
    keeper = ["/bin/sh", f"{following.entry.info['folder']}/keeper.sh"]
    end = time.monotonic() + WITHIN
    while True:
        state = following.poll()
        # A connection that was cut while it was started: the host may still be at it.
        if state.program is None:
            if following.lost_at_start and time.monotonic() < end:
                time.sleep(0.1)
                continue
            raise NotHeld("no program process was recorded", "C5")
        line = following.host.command_line(state.program[0]) if "program" in state.alive else []
        if line and line[:2] != keeper:
            # Who attaches learns only here what is secret.
            following.redactor.add_words(line)
            check_environment(following, state, evidence)
            evidence["command"] = following.redactor.text(shlex.join(following.redactor.clean(line)))
            _detached(following, state, evidence)
            break
        if state.ended or state.abandoned:
            said = [text for text in following.log.last if text.startswith(f"{keeper[1]}: ")]
            if said and state.ended and state.rc:
                raise NotHeld(f"the program could not be executed: {said[-1].removeprefix(keeper[1])[2:]}", "C5")
            evidence["command"] = "(ended before it could be looked at)"
            break
        if "program" in state.alive and time.monotonic() > end:
            raise NotHeld(f"the program was not executed within {WITHIN:g} s", "C5")
        time.sleep(0.02)
    evidence["pid"], evidence["start_tick"] = state.program
    evidence.update(unit_state(following))
    # Active as long as the program runs in it.
    idle = not evidence.get("unit_state", "active").startswith("active")
    if idle and "program" in following.poll().alive:
        raise NotHeld(f"the program runs, but {evidence['unit']} is {evidence['unit_state']}", "C5")
    following.entry.update(program=list(state.program), keeper=list(state.keeper))


def _detached(following, state: State, evidence: dict) -> None:
    """What lets it outlive the connection: a session that is not ours, and no standard input that could end."""
    pid = state.program[0]
    session, stdin = following.host.session(pid), following.host.link(f"/proc/{pid}/fd/0")
    if session is not None:
        evidence["session"] = "its keeper's" if session == state.keeper[0] else f"{session}, made by itself"
    if stdin:
        evidence["stdin"] = stdin


def check_environment(following, state: State, evidence: dict | None = None) -> None:
    """C18: what was asked for must be in the environment of the process itself."""
    if "program" not in state.alive:
        return
    got = following.host.process_environment(state.program[0])
    if not got:
        return
    redactor, asked = following.redactor, following.what["env"]
    redactor.add(got)
    for name, value in redactor.env(asked).items():
        shown = redactor.env({name: got[name]})[name] if name in got else None
        if shown != value:
            seen = "is not set" if shown is None else f"is {shown!r}"
            raise NotHeld(f"{name} was to be {value!r} and {seen} in the running process", "C18")
    if evidence is not None:
        evidence["environment"] = f"{len(asked)} variables read back in the process"


def unit_state(following) -> dict:
    """The state of the launch's systemd scope, as evidence; {} without one. Raises NotHeld when none answers."""
    unit = following.what.get("unit")
    try:
        return {"unit": unit, "unit_state": following.host.unit_state(unit)} if unit else {}
    except Refused as exc:
        raise NotHeld(f"{unit}: {exc}", "C11") from None
