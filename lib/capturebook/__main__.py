"""`capturebook` and `python -m capturebook`: one command as a process, from the first signal to the last byte."""

import contextlib
import os
import signal
import sys


def main() -> int:
    """Run the command that this process was started for; returns its exit status."""
    # Ignored (a shell's background job) stays ignored.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _end)
    _fill_descriptors()
    # Here and not above: a second of imports, in which Ctrl-C would show where Python was.
    from . import cli
    from .cli.common import flushed

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.main()
    except SystemExit as exc:
        status = exc.code
    except KeyboardInterrupt:
        _end(signal.SIGINT, None)
    finally:
        if heard:
            signal.signal(signal.SIGINT, _end)
    return flushed(status)


def _end(signum, _frame) -> None:
    """Nothing was started, or all of it has ended: no clean-up is cut short."""
    with contextlib.suppress(OSError):
        os.write(2, b"capturebook: stopped by Ctrl-C\n")
    os._exit(128 + signum)


def _fill_descriptors() -> None:
    """Closed standard streams lead to /dev/null: else the next file opened gets their number, and children's output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    sys.exit(main())
