"""What /proc of a host says, parsed here: sockets, their owners, and the tree of processes."""

import re
import socket
from dataclasses import dataclass

from .channel import Refused

_STAT = re.compile(rb"^(\d+) \((.*?)\) ([A-Za-z]) (\d+) (\d+) (\d+) ", re.MULTILINE | re.DOTALL)
TICKS = 100
"""Of /proc's clock in a second, on every architecture that Linux runs CUDA on."""

_ANY = {"0" * 8, "0" * 32}
_MAPPED = "0000000000000000FFFF0000"
_LISTEN = "0A"


@dataclass(frozen=True)
class Socket:
    """A listening TCP socket: `inode` tells its owner; `address` is as /proc writes it."""

    port: int
    inode: str
    address: str

    @property
    def loopback(self) -> bool:
        return (
            self.address.endswith("7F") and self.address[:-8] in ("", _MAPPED) or self.address == "0" * 24 + "01000000"
        )

    @property
    def where(self) -> str:
        """What it listens on, in words."""
        if self.address in _ANY:
            return "every address"
        if len(self.address) == 8 or self.address[:-8] == _MAPPED:
            return socket.inet_ntoa(bytes.fromhex(self.address[-8:])[::-1])
        words = [bytes.fromhex(self.address[at : at + 8])[::-1] for at in range(0, 32, 8)]
        return socket.inet_ntop(socket.AF_INET6, b"".join(words))


def listening(table: bytes) -> list[Socket]:
    """Listening sockets from /proc/net/tcp and tcp6, joined. Refused: a table without its header."""
    lines = table.decode("ascii", "replace").splitlines()
    if not lines or "local_address" not in lines[0]:
        raise Refused("/proc/net/tcp could not be read: nothing is known about ports")
    sockets = []
    for line in lines:
        parts = line.split()
        if len(parts) > 9 and parts[3] == _LISTEN:
            address, _, port = parts[1].partition(":")
            sockets.append(Socket(int(port, 16), parts[9], address))
    return sockets


def owners(listing: bytes) -> dict[str, int]:
    """Socket inode -> process, from `ls -l /proc/PID/fd ...`."""
    found: dict[str, int] = {}
    pid = None
    for line in listing.decode("utf-8", "replace").splitlines():
        head = re.fullmatch(r"/proc/(\d+)/fd:", line)
        if head:
            pid = int(head.group(1))
        link = re.search(r"-> socket:\[(\d+)\]$", line)
        if link and pid is not None:
            found.setdefault(link.group(1), pid)
    return found


def session(stat: bytes) -> int | None:
    """The session in one /proc/PID/stat; None for an empty one."""
    found = _STAT.match(stat)
    return int(found.group(6)) if found else None


def children(table: bytes, parent: int) -> dict[int, float]:
    """{pid: seconds from the host's boot to its start} of a process's children, from all /proc/PID/stat."""
    found = {}
    for line in table.splitlines():
        pid, _, rest = line.partition(b" (")
        fields = rest.rpartition(b") ")[2].split()
        if len(fields) > 19 and int(fields[1]) == parent:
            found[int(pid)] = int(fields[19]) / TICKS
    return found


def tree(table: bytes, root: int, session: int) -> set[int]:
    """`root`, its descendants, and what else runs in `session`, zombies aside, from all /proc/PID/stat."""
    parent, kept = {}, set()
    for pid, _, state, ppid, _, sid in _STAT.findall(table):
        parent[int(pid)] = int(ppid)
        if state not in b"ZX" and int(sid) == session and int(pid) != session:
            kept.add(int(pid))
        if state not in b"ZX" and int(pid) == root:
            kept.add(root)
    if not parent:
        raise Refused("/proc/PID/stat could not be read: nothing is known about processes")
    grew = True
    while grew:
        new = {pid for pid, up in parent.items() if up in kept and pid not in kept}
        kept |= new
        grew = bool(new)
    return kept
