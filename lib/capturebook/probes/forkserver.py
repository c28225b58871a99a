"""The fork server: imports torch and triton once, then forks a supervised child for each connection.

Run as `python -m capturebook.probes.forkserver SOCKET READY [MODULE...]`; READY is a descriptor, for one line once it
listens. It must never initialise CUDA: a child forked afterwards could not use the GPU (symptom: "Cannot re-initialize
CUDA in forked subprocess"). For the same reason torch._inductor.compile_fx stays out of the preload and
torch.cuda.is_available() is never called here.
The server lives as long as what it gets as standard input stays open, so it ends with its owner however that dies, from
its first line on: an import may take for ever. Modules find no input, and what they print goes to the server's log.
"""

import atexit
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
import threading

from . import processes
from .servers import READY

PRELOAD = ("torch", "triton", "torch._dynamo", "torch._functorch.aot_autograd")


def main(path: str, ready: int, modules: list[str]) -> None:
    os.set_inheritable(ready, False)
    # Else what a module printed is lost with a server that is killed.
    sys.stdout.reconfigure(line_buffering=True)
    owner = _own_input()
    processes.become_subreaper()
    watch = _OwnerWatch(owner, path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    # Before the imports: a client that comes early waits in the queue, and sees the connection close if they fail.
    listener.listen(64)
    try:
        _preload(modules)
        watch.stop()
        os.write(ready, READY)
        os.close(ready)
        _serve(listener, owner)
    finally:
        _leave(path)


def _own_input() -> int:
    """The owner's end moved off descriptor 0, where a module would read it (symptom: a preload waits for input)."""
    owner = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return owner


def _leave(path: str) -> None:
    processes.kill_descendants()
    # The folder was made for this socket alone.
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


class _OwnerWatch:
    """A thread that ends the server when its owner is gone while modules are imported. stop() ends it before the first
    fork: what forks should have one thread."""

    def __init__(self, owner: int, path: str):
        self._owner, self._path = owner, path
        self._stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="capturebook-owner", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._owner, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            fired = {key.fd for key, _ in selector.select()}
        if self._owner in fired:
            try:
                _leave(self._path)
            finally:
                os._exit(1)

    def stop(self) -> None:
        os.close(self._stop)
        self._thread.join()
        os.close(self._stopped)


def _preload(modules: list[str]) -> None:
    for name in PRELOAD:
        importlib.import_module(name)
    # Keys of Triton's cache hold a hash of Triton itself, hundreds of MB: 2 s on an H200's host, for each child's first
    # launch. What a process has hashed it keeps, and so do its children.
    importlib.import_module("triton.runtime.cache").triton_key()
    # A child that collects garbage would walk all of torch each time (0.5 s); what `modules` define is not frozen,
    # since a child looks for their autotuners among the collector's objects.
    gc.collect()
    gc.freeze()
    # Else the last words of a server that ends are nanobind's, about leaks, and not its reason.
    atexit.register(gc.unfreeze)
    for name in modules:
        importlib.import_module(name)


def _serve(listener: socket.socket, owner: int) -> None:
    """Fork a supervisor for each connection until the owner is gone."""
    from . import supervise

    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    for file in (listener, owner, wake_read):
        selector.register(file, selectors.EVENT_READ)
    supervisors: set[int] = set()
    while True:
        for key, _ in selector.select():
            if key.fileobj is owner:
                if not os.read(owner, 4096):
                    return
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                supervisors.add(_fork(supervise.main, connection, [listener, owner, wake_read, wake_write]))
                connection.close()
            else:
                os.read(wake_read, 4096)
                _reap(supervisors)


def _fork(entry, connection, inherited) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for file in inherited:
            file.close() if isinstance(file, socket.socket) else os.close(file)
        status = entry(connection)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status or 0)


def _reap(supervisors: set[int]) -> None:
    """Collect dead children. What a killed supervisor leaves behind is now ours: end it."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            break
        supervisors.discard(pid)
    for orphan in processes.children(os.getpid()) - supervisors:
        processes.kill_tree(orphan)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
