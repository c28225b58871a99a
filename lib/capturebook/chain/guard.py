"""Run one command and see to it that nothing of it outlives us, nor us the chain.

`python -m capturebook.chain.guard COMMAND...`, with the chain holding the write end of our standard input. The
command and all its descendants end when it exits, and at once when that input closes: the chain stopped us, or was
itself killed.
As a subreaper we inherit orphans, so a Jupyter kernel, which runs in a session of its own, does not escape.
The last thing on our standard output is one line of JSON: {"rc", "stopped", "left_behind": [names]}.
"""

import json
import os
import selectors
import subprocess
import sys
import time

from ..probes import processes

GRACE = 3.0
"""Seconds that descendants get to end by themselves once the command has exited; a fork server needs some."""


def main(command: list[str]) -> None:
    processes.become_subreaper()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2)
    stopped = _wait(child.pid)
    if stopped:
        processes.kill_tree(child.pid)
    rc = child.wait()
    left = [] if stopped else _outlived()
    processes.kill_descendants()
    print(json.dumps({"rc": rc, "stopped": stopped, "left_behind": left}), flush=True)


def _wait(pid: int) -> bool:
    """Until the command exits (False) or our standard input closes (True)."""
    handle = os.pidfd_open(pid)
    selector = selectors.DefaultSelector()
    selector.register(handle, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    while True:
        fired = {key.fd for key, _ in selector.select()}
        if handle in fired:
            return False
        if not os.read(0, 4096):
            return True


def _outlived() -> list[str]:
    """Names of the descendants that are alive after the grace."""
    end = time.monotonic() + GRACE
    while names := _alive():
        if time.monotonic() > end:
            return sorted(names)
        time.sleep(0.05)
    return []


def _alive() -> list[str]:
    names = []
    for pid in processes.descendants(os.getpid()):
        try:
            with open(f"/proc/{pid}/stat") as file:
                head, _, tail = file.read().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if tail.split()[0] != "Z":
            names.append(head.partition("(")[2])
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
