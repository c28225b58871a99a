"""One probe's supervisor: forks the child, keeps its deadline, ends all its descendants, reports how it ended.

It owns the connection to the client: when that closes (the client died or gave up), the probe ends too.
"""

import json
import os
import selectors
import signal
import socket
import time

from . import child, processes

_EXPECTED = ("torch/_inductor/compile_worker", "multiprocessing.resource_tracker")
"""Helpers that torch starts for a compile and ends at interpreter exit, which a probe never reaches."""


def main(connection: socket.socket) -> int:
    """Serve one request: a JSON line in, {"event": "started"} and {"event": "ended"} lines out."""
    server = os.pidfd_open(os.getppid())
    processes.become_subreaper()
    request = json.loads(_read_line(connection))
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        processes.die_with_parent(os.getppid())
        connection.close()
        child.main(request)
    _send(connection, {"event": "started", "pid": pid})
    why = _wait(connection, server, pid, began + request["probe"]["deadline"])
    status = None
    if why == "exited":
        _, status = os.waitpid(pid, 0)
    left = processes.kill_descendants()
    strangers = [line for line in left if not any(known in line for known in _EXPECTED)]
    end = {
        "event": "ended",
        "why": why,
        "pid": pid,
        "code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
        "left_behind": len(strangers) if status == 0 else 0,
        "seconds": time.monotonic() - began,
    }
    if why != "abandoned":
        _send(connection, end)
    return 0


def _wait(connection: socket.socket, server: int, pid: int, deadline: float) -> str:
    """Until the child exits, the deadline passes, or client or server are gone: "exited", "timeout" or "abandoned"."""
    handle = os.pidfd_open(pid)
    selector = selectors.DefaultSelector()
    selector.register(handle, selectors.EVENT_READ)
    selector.register(connection, selectors.EVENT_READ)
    selector.register(server, selectors.EVENT_READ)
    try:
        while True:
            events = selector.select(max(0.0, deadline - time.monotonic()))
            fired = {key.fileobj for key, _ in events}
            if handle in fired:
                return "exited"
            if server in fired or connection in fired and not connection.recv(4096):
                return "abandoned"
            if not fired and time.monotonic() >= deadline:
                return "timeout"
    finally:
        os.close(handle)


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the client closed before its request was whole")
        data += part
    return data


def _send(connection: socket.socket, message: dict) -> None:
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        signal.raise_signal(signal.SIGKILL)
