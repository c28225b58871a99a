"""Connect to a host, or say why ssh cannot reach it: by what ssh itself says, each cause with what to do about it."""

import re

from .channel import Channel, ChannelError
from .host import Facts, Host
from .redact import Redactor
from .stages import NotHeld

CAUSES = (
    (
        r"Could not resolve hostname",
        "its name is not resolved",
        "see ~/.ssh/config: it gives {host} no HostName, or one that does not resolve",
    ),
    (
        r"Host key verification failed",
        "its host key is not the known one, or not known yet",
        "run `ssh {host}` once and compare the key; of a host that was made anew, `ssh-keygen -R` forgets the old one",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "it refuses the authentication",
        "`ssh {host} true` must do without a password: see User and IdentityFile in ~/.ssh/config, ssh-add",
    ),
    (
        r"Connection refused",
        "the connection is refused",
        "see ~/.ssh/config: nothing listens at HostName and Port of {host}, or its sshd is not up",
    ),
    (
        r"timed out|No route to host|Network is unreachable|^no answer",
        "it does not answer",
        "see whether it is up, and the way there: HostName, Port and ProxyJump in ~/.ssh/config, a VPN",
    ),
)
"""What ssh prints, what that means, what to do."""

OTHER = ("ssh ends", "`ssh {host} true` must work first: see ~/.ssh/config")

NAMES = re.compile(
    r"(?:hostname|to|to host|by|key for|known for) (\S+?):? (?:port|has|and|[A-Z])|(\S+@\S+?): Permission"
    r'|-R "(\S+?)"'
)
"""The hosts and users that ssh's own words name."""


def connect(host: str | None, redactor: Redactor) -> tuple[Host, Facts]:
    """A connected host, as ssh takes its name (None: this machine), and what it is. Raises NotHeld (C5) when ssh cannot
    reach it; the record of that names no host. Raises ChannelError for what else keeps it from answering."""
    channel = Channel(host)
    try:
        there = Host(channel)
        return there, there.facts()
    except ChannelError as exc:
        channel.close()
        said = str(exc)
        if host is None or "(exit status 255)" not in said and not said.startswith("no answer"):
            raise
        redactor.at("")
        said = said.removeprefix("the connection ended (exit status 255): ")
        for name in {host, *(name for found in NAMES.findall(said) for name in found if name)}:
            redactor.places[name] = "<host>"
        cause, todo = next((cause[1:] for cause in CAUSES if re.search(cause[0], said)), OTHER)
        raise NotHeld(f"ssh cannot reach {host}: {cause}: {said}", "C5", todo.format(host=host)) from exc
