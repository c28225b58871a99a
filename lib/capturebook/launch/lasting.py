"""A channel that is made again when its connection ends, for requests that may be asked twice."""

import contextlib
import time
from collections.abc import Callable

from .channel import MOST_ANSWER, Channel, ChannelError
from .stages import NotHeld

LOST = 60.0
"""Seconds after which a connection that does not come back ends the following; the program goes on."""


class Lasting:
    """Asks as a Channel does. `say` gets one line when the connection is lost and one when it is back; `todo` is what
    to do when it stays away, after which nothing is asked any more."""

    def __init__(self, channel: Channel, say: Callable[[str], None], todo: str):
        self._channel, self._say, self._todo = channel, say, todo
        self.gone = False
        """Whether it stayed away: nothing is asked any more."""

    def ask(self, script: str, data: bytes = b"", seconds: float = 10.0, most: int = MOST_ANSWER) -> tuple[int, bytes]:
        """As Channel.ask. Raises NotHeld when the connection stays away, ChannelError from then on."""
        lost_at = None
        while True:
            try:
                answer = self._channel.ask(script, data, seconds, most)
            except ChannelError as exc:
                if self.gone:
                    raise
                if lost_at is None:
                    lost_at = time.monotonic()
                    self._say(f"connection lost, attaching again: {exc}")
                self._again(exc, time.monotonic() - lost_at)
                continue
            if lost_at is not None:
                self._say(f"attached again after {time.monotonic() - lost_at:.0f} s")
            return answer

    def _again(self, exc: ChannelError, away: float) -> None:
        self._channel.close()
        if away > LOST:
            self.gone = True
            raise NotHeld(f"the connection is lost: {exc}", status="timeout", todo=self._todo) from exc
        time.sleep(min(5.0, 0.3 + away / 2))
        # It may not start (no ssh, no memory); then the next round asks the closed one.
        with contextlib.suppress(ChannelError):
            self._channel = Channel(self._channel.host)

    def close(self) -> None:
        self._channel.close()
