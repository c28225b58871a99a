"""A URL on a host's loopback as it is reached from here: as it is, or through an ssh forward on our loopback."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from .channel import Channel, ChannelError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@contextmanager
def reachable(url: str | None, host: str | None) -> Iterator[str | None]:
    """The URL to ask. The forward lives as long as the block, and dies with this process: its ssh has our pipe as
    standard input. Raises ChannelError when it cannot be made."""
    if url is None or host is None or urlsplit(url).hostname not in LOOPBACK:
        yield url
        return
    there = urlsplit(url)
    remote = there.port or 80
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        local = probe.getsockname()[1]
    # Not over a control socket: the master would keep the forward.
    extra = ("-S", "none", "-oExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local}:127.0.0.1:{remote}")
    with Channel(host, extra) as channel:
        status, _ = channel.ask("true\n", seconds=20.0)
        if status:
            raise ChannelError(f"no forward to port {remote}")
        yield there._replace(netloc=f"127.0.0.1:{local}").geturl()
