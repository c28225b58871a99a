"""Ctrl-C, SIGTERM and SIGHUP as a flag that the chain looks at: nothing is torn out of the middle of a clean-up."""

import signal


class Stop:
    """While entered, stop signals set `signum` instead of ending the process; a second one raises KeyboardInterrupt.

    What was ignored (SIGHUP under nohup) stays ignored.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.signum: int | None = None
        self._before: dict = {}

    @property
    def name(self) -> str:
        return "Ctrl-C" if self.signum == signal.SIGINT else signal.Signals(self.signum).name

    def __enter__(self) -> "Stop":
        heard = [number for number in self.SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, signum, _frame) -> None:
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum
