"""Linux process control: subreapers, death signals, and the kill of whole trees."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def become_subreaper() -> None:
    """Orphaned descendants become our children, so that none escapes a kill."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL us when the parent's thread that forked us ends; at once if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def children(pid: int) -> set[int]:
    """Direct children of a process, of all its threads, zombies included."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    found.update(int(p) for p in file.read().split())
    return found


def descendants(pid: int) -> set[int]:
    found, queue = set(), [pid]
    while queue:
        new = children(queue.pop()) - found
        found |= new
        queue.extend(new)
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL a process and its descendants. Stopped first, so that none forks while we look."""
    for target in (pid, *descendants(pid)):
        _signal(target, signal.SIGSTOP)
    for target in (*descendants(pid), pid):
        _signal(target, signal.SIGKILL)


def end_session(process: subprocess.Popen) -> None:
    """SIGKILL what is left of a session that `process` was started to lead (start_new_session), and collect it.

    Compile workers, and what a profiler runs, outlive the process that started them.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of it has ended
    finally:
        process.wait()


def kill_descendants(seconds: float = 5.0) -> list[str]:
    """SIGKILL and collect all descendants of this process (a subreaper). Returns the command lines of those that ran.

    One that has ended, and that its parent did not collect, has no command line and is left out: torch's compile
    workers end with the process that they compile for, and would be told as strangers when they are met like that.
    Raises TimeoutError when some are still there after `seconds`.
    """
    killed: dict[int, str] = {}
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(os.getpid())
        if not left:
            return list(killed.values())
        killed |= {pid: line for pid in left - set(killed) if (line := _command_line(pid))}
        for pid in left:
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"{len(left)} processes outlive SIGKILL: {sorted(left)}")
        time.sleep(0.01)


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(2000).replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
