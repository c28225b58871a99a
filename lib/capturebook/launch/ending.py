"""End a launch's program by its recorded process, and notice when the recorded one is not the program."""

import contextlib
import time

from .host import Refused, State
from .stages import NotHeld

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""

ASTRAY = 1.0
"""Seconds within which a keeper mostly sees that its program has ended; after them it is looked what it waits for."""

SWEPT = 12.0
"""Seconds within which a keeper whose program has ended has ended what it left, and written the exit status."""

BY_HAND = "end them on that host by hand"


def astray(following, state: State) -> bool:
    """Whether the keeper waits for another process than the recorded one: a child as old as the launch."""
    now = time.monotonic()
    since = following.astray_since = (following.astray_since or now) if state.astray else None
    if since is None or now - since < ASTRAY or state.started is None:
        return False
    host, keeper = following.host, ["/bin/sh", f"{following.entry.info['folder']}/keeper.sh"]
    old = [pid for pid, at in host.children(state.keeper[0]).items() if at - state.started < 1]
    # A zombie has none: it is what the keeper has not seen yet.
    lines = filter(None, map(host.command_line, old))
    return any(line[:2] != keeper for line in lines)


def end_program(following, grace: float = GRACE, why: str = "") -> State:
    """SIGTERM to the recorded program, SIGKILL after `grace` seconds; the keeper ends its descendants. `why` is said
    once it is reached and runs. Returns the state with the exit status. Raises NotHeld when something outlives that."""
    info, host, say = following.entry.info, following.host, following.stages.say
    began, sent, gone = time.monotonic(), "", None
    following.ending = True
    while True:
        state = following.state = host.poll(info["folder"], following.log.offset)
        following.log.feed(state.chunk, state.seconds)
        if state.ended or following.restarted:
            return state
        if state.abandoned:
            if state.keeper:
                host.sweep(info["folder"], state.keeper, info["nonce"], following.what.get("unit", ""))
            return state
        if why:
            # Said now: a program that is deaf to SIGTERM takes a while.
            say(f"ending it, stage {following.stages.reached} does not hold: {why}")
            why = ""
        waited = time.monotonic() - began
        gone = (gone or waited) if "program" not in state.alive else None
        if astray(following, state) or gone is not None and waited - gone > SWEPT:
            say("its keeper waits for another process than the recorded one: ending the keeper")
            # It may have ended meanwhile; the next look says so.
            with contextlib.suppress(Refused):
                host.signal(info["boot"], state.keeper, "KILL")
        due = "KILL" if waited > grace else "TERM"
        if "program" in state.alive and sent != due:
            try:
                host.signal(info["boot"], state.program, due)
            except Refused as exc:
                say(f"it ended by itself: {exc}")
            sent = due
        if waited > grace + 20:
            raise NotHeld("its processes outlive SIGKILL", "C4", BY_HAND, "fail")
        time.sleep(0.1)
