"""Where a launch's processes listen: what others than this host can reach, and ports that nobody asked for."""

from .procfs import Socket


def _sockets(following) -> list[Socket]:
    """The listening sockets of the launch's processes, by port."""
    host, state = following.host, following.state
    owned = host.owners(host.tree(state.program[0], state.keeper[0]))
    return sorted((found for found in host.listening() if found.inode in owned), key=lambda found: found.port)


def note(following) -> None:
    """A caveat for each socket that is not on the host's loopback. Nothing is stopped: it is the user's command."""
    for found in _sockets(following):
        wide = f"it listens on {found.where}, port {found.port}: others can reach it; bind 127.0.0.1"
        if not found.loopback and wide not in following.caveats:
            following.caveats.append(wide)


def elsewhere(following) -> str:
    """ ", but it listens on port 8000" for the ports that the launch's processes listen on, "" for none."""
    ports = sorted({found.port for found in _sockets(following)})
    return f", but it listens on port {', '.join(map(str, ports))}" if ports else ""
