"""Requests to a host's agent (sh/agent.sh), typed. Every value is quoted or travels as data."""

import shlex
from dataclasses import dataclass, field

from . import procfs
from .channel import MOST_ANSWER, Channel, ChannelError, Refused, words

LOG_PART = 1 << 20
"""Bytes of a log that are read at a time, as long as it is not far ahead of us."""


@dataclass(frozen=True)
class Facts:
    """What a host is. `clock` is its clock in seconds since 1970, `lacks` are optional things that it has not."""

    system: str
    boot: str
    clock: int
    home: str
    missing: tuple[str, ...]
    lacks: tuple[str, ...]


@dataclass
class State:
    """A launch as its folder and /proc show it now. Times are seconds since the host's boot.

    `keeper` and `program` are (pid, start time in clock ticks), None before they were written. `alive` names those of
    the two that are still there; `waits` is whether the keeper has yet to see the program end.
    """

    boot: str = ""
    nonce: str = ""
    uptime: float = 0.0
    keeper: tuple[int, int] | None = None
    program: tuple[int, int] | None = None
    started: float | None = None
    alive: set[str] = field(default_factory=set)
    waits: bool = False
    exit: dict[str, str] = field(default_factory=dict)
    log_size: int | None = None
    chunk: bytes = b""

    @property
    def ended(self) -> bool:
        """The exit status was written: it is the last thing that the keeper writes."""
        return bool(self.exit)

    @property
    def abandoned(self) -> bool:
        """The keeper is gone and left no exit status: it was killed, or could not write."""
        return not self.exit and "keeper" not in self.alive

    @property
    def astray(self) -> bool:
        """The recorded process is gone and the keeper waits on: for another one, or it has not seen that yet."""
        return self.waits and self.program is not None and "program" not in self.alive and not self.abandoned

    @property
    def rc(self) -> int:
        return int(self.exit["rc"])

    @property
    def seconds(self) -> float:
        """From the start until now, or until the program's end."""
        end = float(self.exit["ended"]) if self.exit else self.uptime
        return round(max(0.0, end - (self.started if self.started is not None else end)), 2)


class Host:
    """A connected host. Calls raise ChannelError when it does not answer and Refused when it cannot."""

    def __init__(self, channel: Channel):
        self.channel = channel

    def _ask(self, call: str, data: bytes = b"", seconds: float = 10.0, longest: int = MOST_ANSWER, **values) -> bytes:
        status, answer = self.channel.ask(words(**values) + call + "\n", data, seconds, longest)
        if status:
            raise Refused(answer.decode("utf-8", "replace").strip() or f"exit status {status}")
        return answer

    def facts(self, seconds: float = 15.0) -> Facts:
        """Raises ChannelError when the answer is not whole."""
        answer = self._ask("cb_hello", seconds=seconds).decode("utf-8", "replace")
        # A login script may have printed before the first line of ours.
        pairs = [line.split(" ", 1) for line in answer.splitlines() if " " in line]
        first = dict(pairs)
        absent = {"system", "boot", "clock", "home"} - first.keys()
        if absent:
            raise ChannelError(f"the host's answer lacks {', '.join(sorted(absent))}; it has no /proc, or no uname")
        return Facts(
            first["system"],
            first["boot"],
            int(first["clock"]),
            first["home"],
            tuple(value for name, value in pairs if name == "missing"),
            tuple(value for name, value in pairs if name == "without"),
        )

    def make_folder(self, base: str, folder: str, nonce: str) -> str:
        """Make a new folder; returns the nonce as it is read back."""
        answer = self._ask("cb_folder 2>&1", seconds=5.0, base=base, dir=folder, nonce=nonce)
        return answer.decode("utf-8", "replace").strip()

    def deliver(self, path: str, data: bytes, mode: int) -> str:
        """Write a file; returns its sha256 as read back."""
        parent = path.rpartition("/")[0]
        # Since the last of it was sent: a disk may take its time to write it.
        seconds = 5.0 + len(data) / 20e6
        answer = self._ask("cb_deliver 2>&1", data, seconds, parent=parent, file=path, mode=f"{mode:o}")
        return answer.decode("ascii", "replace").split()[0]

    def check(self, command: list[str], folder: str, start: bytes, seconds: float = 10.0) -> tuple[int, str]:
        """A short command in `folder`, in the program's environment, standard input empty: exit status and output."""
        script = words(folder=folder) + f"cb_check {shlex.join(command)} 2>&1\n"
        status, answer = self.channel.ask(script, start, seconds)
        return status, answer.decode("utf-8", "replace").strip()

    def environment(self, start: bytes, nonce: str, program: str) -> dict[str, str]:
        """The environment that the start text makes, as `env` prints it there. Refused: no folder, no command."""
        answer = self._ask("cb_environment 2>&1", start, nonce=nonce, first=program)
        head, mark, rest = answer.partition(b"environment\n")
        if not mark:
            raise Refused(f"no environment came back: {head.decode('utf-8', 'replace').strip()}")
        pairs = [entry.partition(b"=") for entry in rest.split(b"\0") if entry]
        return {name.decode("utf-8", "replace"): value.decode("utf-8", "surrogateescape") for name, _, value in pairs}

    def file_print(self, path: str) -> str:
        """A file's size and its last MiB's sha256, then inode, time and type. "" when there is none."""
        status, answer = self.channel.ask(words(file=path) + "cb_print_file\n", b"", 5.0)
        return answer.decode("utf-8", "replace").strip() if status == 0 else ""

    def content(self, path: str, limit: int = 1 << 20) -> bytes:
        """A file's last `limit` bytes. Refused when it cannot be read."""
        return self._ask(f'tail -c {limit} -- "$cb_file" 2>&1', file=path)

    def fetch(self, path: str, size: int) -> bytes:
        """A whole file of `size` bytes. Raises ChannelError when it is slower than 1 MB/s."""
        return self._ask('cat -- "$cb_file"', seconds=10.0 + size / 1e6, longest=size + (1 << 20), file=path)

    def listening(self) -> list[procfs.Socket]:
        return procfs.listening(self._ask("cb_ports"))

    def owners(self, pids: set[int] | None = None) -> dict[str, int]:
        """Socket inode -> process, among these processes, or all that we may look at."""
        which = " ".join(f"/proc/{pid}/fd" for pid in sorted(pids)) if pids is not None else "/proc/[0-9]*/fd"
        # Some processes end meanwhile, and those of other users are closed to us: ls says so by its status.
        return procfs.owners(self._ask(f"ls -l /proc/self/fd {which} 2>/dev/null; true"))

    def tree(self, root: int, session: int) -> set[int]:
        """The program, its descendants, and the processes in its session."""
        return procfs.tree(self._ask("cb_table; true"), root, session)

    def children(self, pid: int) -> dict[int, float]:
        """{pid: start in seconds since the host's boot} of a process's children."""
        return procfs.children(self._ask("cb_table; true"), pid)

    def command_line(self, pid: int) -> list[str]:
        """A process's arguments; empty for a zombie and for one that is gone."""
        answer = self._ask("cat /proc/$cb_pid/cmdline 2>/dev/null; true", pid=pid)
        if not answer:
            return []
        return [part.decode("utf-8", "surrogateescape") for part in answer.removesuffix(b"\0").split(b"\0")]

    def session(self, pid: int) -> int | None:
        """The session that a process is in; None for one that is gone."""
        return procfs.session(self._ask("cat /proc/$cb_pid/stat 2>/dev/null; true", pid=pid))

    def process_environment(self, pid: int) -> dict[str, str]:
        """A process's environment as it began with it; empty for one that is gone."""
        answer = self._ask("cat /proc/$cb_pid/environ 2>/dev/null; true", pid=pid)
        pairs = [entry.decode("utf-8", "surrogateescape").partition("=") for entry in answer.split(b"\0") if entry]
        return {name: value for name, _, value in pairs}

    def link(self, path: str) -> str:
        """Where a symbolic link leads; "" when it is gone."""
        return (
            self._ask('readlink -- "$cb_file" 2>/dev/null; true', file=path).decode("utf-8", "surrogateescape").strip()
        )

    def start(self, folder: str, nonce: str, start: bytes, log_blocks: int, reset: str, unit: str) -> None:
        """Start the keeper, and through it the program, as a systemd scope named `unit` unless that is empty.
        Refused when no program process was there within 3 s."""
        self._ask("cb_start", start, seconds=8.0, dir=folder, nonce=nonce, limit=log_blocks, reset=reset, unit=unit)

    def unit_state(self, unit: str) -> str:
        """A systemd unit's state, "active (running)"; for "" the manager's version. Refused when none answers."""
        answer = self._ask("cb_unit_state", unit=unit).decode("utf-8", "replace")
        found = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
        if not unit and "Version" in found:
            return found["Version"]
        if not found.get("ActiveState"):
            raise Refused(f"systemctl answers {answer.strip()[:200]!r}")
        return f"{found['ActiveState']} ({found.get('SubState', '')})"

    def poll(self, folder: str, offset: int, most: int = LOG_PART) -> State:
        """The launch's state and the next part of its log, `most` bytes or fewer. Refused (C11) when the answer lacks
        its parts."""
        answer = self._ask("cb_poll", seconds=10.0 + most / 1e6, dir=folder, offset=offset, most=most)
        head, mark, rest = answer.partition(b"\nlog ")
        if not mark:
            raise Refused("the poll read nothing of the launch")
        size, _, chunk = rest.partition(b"\n")
        state = State(log_size=None if size == b"none" else int(size), chunk=chunk)
        for line in head.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(" ")
            if name in ("boot", "nonce"):
                setattr(state, name, value)
            elif name in ("uptime", "started") and value:
                setattr(state, name, float(value))
            elif name in ("keeper", "program") and value:
                pid, _, tick = value.partition(" ")
                setattr(state, name, (int(pid), int(tick)))
            elif name == "alive":
                state.alive.add(value)
            elif name == "waits":
                state.waits = True
            elif name == "exit":
                key, _, item = value.partition("=")
                state.exit[key] = " ".join(item.split())
        if not state.boot or not state.nonce or not state.uptime:
            raise Refused("the poll read nothing of the launch")
        return state

    def signal(self, boot: str, process: tuple[int, int], name: str) -> None:
        """Signal a process that is still the recorded one. Refused when it is not."""
        self._ask("cb_signal", boot=boot, pid=process[0], tick=process[1], signal=name)

    def sweep(self, folder: str, keeper: tuple[int, int], nonce: str, unit: str) -> str:
        """End what a killed keeper left behind; returns the processes' names."""
        known = {"dir": folder, "nonce": nonce, "unit": unit, "keeper": keeper[0], "born": keeper[1]}
        answer = self._ask("cb_sweep_for", seconds=15.0, **known)
        return answer.decode("utf-8", "replace").strip()
