"""Follow the log of a server that is ready, as `journalctl -f` does: until it has ended, or until Ctrl-C."""

import time
from dataclasses import replace

from .channel import ChannelError
from .follow import Following
from .host import Refused
from .outcome import Outcome
from .stages import NotHeld


def tail(following: Following, outcome: Outcome) -> Outcome:
    """Read on, and leave the server alone whatever comes. Returns how it ended, or for Ctrl-C `outcome`: how it was."""
    try:
        following.stages.say("following its log until it ends; Ctrl-C ends the following, and not the server")
        _to_its_end(following)
    except KeyboardInterrupt:
        return replace(outcome, reason="ready; it goes on", payload=following.payload())
    except (NotHeld, ChannelError, Refused) as exc:
        if following.over:
            following.entry.update(state="ended")
        lost = exc if isinstance(exc, NotHeld) else NotHeld(f"its log cannot be read on: {exc}", "C11")
        return replace(Outcome.of(lost), payload=following.payload())
    gone = following.gone("after it was ready")
    if following.state.ended and not following.entry.stopping:
        return following.failed(NotHeld(gone, following.said_class(), status="fail"))
    following.entry.update(state="ended" if following.state.ended else "unknown")
    return Outcome("pass" if following.state.ended else "fail", gone, payload=following.payload())


def _to_its_end(following: Following) -> None:
    while True:
        state = following.poll()
        read = following.log.offset >= (state.log_size or 0)
        if state.abandoned or state.ended and read:
            return
        if read:
            time.sleep(following.pause)
