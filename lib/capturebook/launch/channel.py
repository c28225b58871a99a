"""One connection to a host's POSIX sh, here or over SSH, and requests on it that cannot swallow each other.

The command line is fixed and holds no value of anybody's: a shell reads the agent (sh/agent.sh) from its standard
input, and then requests: a script, and data as the script's own standard input. Each answer ends with a random token,
so that what a login script prints is never taken for an answer, and an answer cut short never for a whole one.
"""

import contextlib
import os
import secrets
import selectors
import shlex
import subprocess
import tempfile
import time
from functools import cache
from importlib import resources

SSH = "CAPTUREBOOK_SSH"
"""Variable that holds the ssh command, if not "ssh": as in "ssh -F other_config"."""

SSH_OPTIONS = (
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=2",
    # The forwards of the user's own configuration are for the user's own sessions, which may hold their ports.
    "-oClearAllForwardings=yes",
)


MOST_ANSWER = 64 << 20
"""Bytes that an answer may have: a login script may print without end."""


class ChannelError(RuntimeError):
    """The host did not answer, or not whole. One line: what was seen, with what ssh or the shell said."""


class Refused(RuntimeError):
    """The host answered that it could not, or with nothing. The text is what its command printed."""


@cache
def text_of(*names: str) -> bytes:
    """Our shell files, joined."""
    return b"".join((resources.files(__package__) / "sh" / f"{name}.sh").read_bytes() for name in names)


def words(**values: str | int) -> str:
    """Shell assignments to cb_NAME, every value quoted."""
    return "".join(f"cb_{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def ssh_command() -> list[str]:
    given = os.environ.get(SSH, "ssh")
    try:
        command = shlex.split(given)
    except ValueError as exc:
        raise ChannelError(f"{SSH}: given {given!r}: {exc}") from None
    if not command:
        raise ChannelError(f"{SSH}: given {given!r}; allowed: a command, as in 'ssh -F file'")
    return command


def encoded(text: str) -> bytes:
    """As file names and arguments are bytes."""
    return text.encode("utf-8", "surrogateescape")


class Channel:
    """A shell on a host. `host` is None for this machine, else what one gives to ssh; `extra` are more ssh options."""

    def __init__(self, host: str | None = None, extra: tuple[str, ...] = ()):
        self.host = host
        self._err = tempfile.TemporaryFile()
        agent = text_of("functions", "agent")
        boot = f'eval "$(dd bs=1 count={len(agent)} 2>/dev/null)"'
        if host is None:
            command = ["/bin/sh", "-c", boot]
        else:
            command = [*ssh_command(), *SSH_OPTIONS, *extra, "--", host, f"exec /bin/sh -c '{boot}'"]
        try:
            # A session of its own: Ctrl-C at the terminal is for us to answer, not for the connection to die of.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._err, start_new_session=True
            )
        except OSError as exc:
            raise ChannelError(f"{command[0]} does not start: {exc.strerror}") from None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._unsent, self._got = bytearray(agent), bytearray()
        self._usable = True

    def ask(self, script: str, data: bytes = b"", seconds: float = 10.0, most: int = MOST_ANSWER) -> tuple[int, bytes]:
        """Run a script with `data` as its standard input. Returns its exit status and all it printed.

        Raises ChannelError when the connection ends, no whole answer came `seconds` after the last of `data` was sent,
        nothing could be sent for as long, or more than `most` bytes came; the channel is closed then.
        """
        if not self._usable:
            raise ChannelError("the connection is closed")
        token = secrets.token_hex(16)
        code = encoded(script)
        self._unsent += b"%d %d %s\n" % (len(code), len(data), token.encode()) + code + data
        try:
            return self._answer(b"\n" + token.encode() + b" ", seconds, most)
        except BaseException:
            self.close()
            raise

    def _answer(self, mark: bytes, seconds: float, most: int) -> tuple[int, bytes]:
        end = time.monotonic() + seconds
        stdin, stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if self._unsent:
                selector.register(stdin, selectors.EVENT_WRITE)
            searched = 0
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    raise ChannelError(f"no answer within {seconds:g} s{self._said()}")
                for key, _ in selector.select(left):
                    if key.fd == stdin:
                        self._send(stdin)
                        end = time.monotonic() + seconds
                        if not self._unsent:
                            selector.unregister(stdin)
                    elif not self._receive(stdout):
                        raise ChannelError(f"the connection ended{self._how()}{self._said()}")
                at = self._got.find(mark, searched)
                line_end = self._got.find(b"\n", at + len(mark)) if at >= 0 else -1
                if line_end >= 0:
                    status, answer = int(self._got[at + len(mark) : line_end]), bytes(self._got[:at])
                    del self._got[: line_end + 1]
                    return status, answer
                if len(self._got) > most:
                    raise ChannelError(f"more than {most >> 20} MB came and no end of it: {bytes(self._got[:60])!r}...")
                searched = max(0, len(self._got) - len(mark)) if at < 0 else at

    def _send(self, stdin: int) -> None:
        try:
            sent = os.write(stdin, self._unsent[:65536])
        except BlockingIOError:
            return
        except BrokenPipeError:
            raise ChannelError(f"the connection ended{self._how()}{self._said()}") from None
        del self._unsent[:sent]

    def _receive(self, stdout: int) -> bool:
        got = os.read(stdout, 1 << 20)
        self._got += got
        return bool(got)

    def _how(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return ""
        return f" (killed by signal {-code})" if code < 0 else f" (exit status {code})"

    def _said(self) -> str:
        """What ssh or the shell wrote to its standard error, its last lines in one."""
        # Not by seek: the child writes at the same offset.
        err = os.pread(self._err.fileno(), 1 << 16, 0)
        lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {' / '.join(lines[-4:])}" if lines else ""

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as we know without asking."""
        return self._usable and self._process.poll() is None

    def close(self) -> None:
        """End the connection. What was started on the host goes on."""
        self._usable = False
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._err.close()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_) -> None:
        self.close()
