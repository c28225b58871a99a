"""Folders among the system's temporary files; one whose owner died by kill -9 is removed when the next is made."""

import fcntl
import os
import re
import shutil
import tempfile

SHORT = 70
"""Bytes of the temporary folder's path that leave a socket below enough of the 107 that its path may have."""


class TempFolder:
    """A folder of this process (mode 0700) at `path`; making one removes those whose owner is dead.

    The owner holds the folder by flock, which a killed process lets go of: unlike a process id in the name, that is
    right across containers that share the folder, and when ids are given out again. `use` says what it is for.
    """

    def __init__(self, use: str, parent: str | None = None):
        prefix, parent = f"capturebook-{use}-", parent or tempfile.gettempdir()
        _sweep(parent, prefix)
        self._lock = None
        while self._lock is None:  # another process may take the folder for a dead one's before it is held
            self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            self._lock = _hold(self.path)

    def remove(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *exc) -> None:
        self.remove()


def _sweep(parent: str, prefix: str) -> None:
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    with os.scandir(parent) as entries:
        ours = [e.path for e in entries if name.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    for path in ours:
        lock = _hold(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _hold(path: str) -> int | None:
    """A descriptor that holds the folder; None where it is held, gone or another user's."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(lock)
        if held.st_uid == os.geteuid() and os.path.samestat(held, os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
