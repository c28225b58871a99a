"""A URL on a host's loopback as it is reached from here: as it is, or through an ssh forward on our loopback."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from .channel import Channel, ChannelError, ssh_command

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Forward:
    """`url` is what to ask once `ensure` was called. The forward dies with this process: its ssh has our pipe as
    standard input."""

    def __init__(self, url: str | None, host: str | None):
        self.url, self._host = url, host
        self._there = None if url is None or host is None or urlsplit(url).hostname not in LOOPBACK else urlsplit(url)
        self._channel: Channel | None = None
        self._folder: tempfile.TemporaryDirectory | None = None

    def ensure(self) -> None:
        """Make it, or make it again when its connection has ended. Raises ChannelError when that cannot be."""
        if self._there is None or self._channel and self._channel.alive:
            return
        self.close()
        remote = self._there.port or 80
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local = probe.getsockname()[1]
        # Over a control socket of its own: the user's master would keep the forward. A control socket's path is short.
        self._folder = tempfile.TemporaryDirectory(prefix="capturebook-ssh-", dir="/tmp")
        control = f"{self._folder.name}/ssh"
        self._channel = Channel(self._host, ("-M", "-S", control, "-oControlPersist=no"))
        self._channel.ask("true\n", seconds=20.0)
        # Without the configuration, whose forwards would be asked for as well.
        to = "[::1]" if self._there.hostname == "::1" else self._there.hostname
        asked = ("-F", "none", "-S", control, "-O", "forward", "-L", f"127.0.0.1:{local}:{to}:{remote}")
        try:
            made = subprocess.run([*ssh_command(), *asked, "--", self._host], capture_output=True, timeout=10)
        except subprocess.TimeoutExpired:
            raise ChannelError(f"no forward to port {remote} within 10 s") from None
        if made.returncode:
            raise ChannelError(f"no forward to port {remote}: {made.stderr.decode('utf-8', 'replace').strip()}")
        self.url = self._there._replace(netloc=f"127.0.0.1:{local}").geturl()

    def close(self) -> None:
        if self._channel:
            self._channel.close()
        if self._folder:
            self._folder.cleanup()
        self._channel = self._folder = None


@contextmanager
def reachable(url: str | None, host: str | None) -> Iterator[str | None]:
    """The URL to ask as long as the block lasts. Raises ChannelError when its forward cannot be made."""
    forward = Forward(url, host)
    try:
        forward.ensure()
        yield forward.url
    finally:
        forward.close()
