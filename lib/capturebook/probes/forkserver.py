"""The fork server: imports torch and triton once, then forks a supervised child for each connection.

Run as `python -m capturebook.probes.forkserver SOCKET [MODULE...]`. It must never initialise CUDA: a child forked
afterwards could not use the GPU (symptom: "Cannot re-initialize CUDA in forked subprocess"). For the same reason
torch._inductor.compile_fx stays out of the preload and torch.cuda.is_available() is never called here.
The server lives as long as its standard input stays open, so it ends with its owner however that dies.
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

from . import processes

PRELOAD = ("torch", "triton", "torch._dynamo", "torch._functorch.aot_autograd")


def main(path: str, modules: list[str]) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    # Before the imports: a client that comes early waits in the queue, and sees the connection close if they fail.
    listener.listen(64)
    processes.become_subreaper()
    try:
        _preload(modules)
        _serve(listener)
    finally:
        processes.kill_descendants()
        # The folder was made for this socket alone.
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)


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


def _serve(listener: socket.socket) -> None:
    """Fork a supervisor for each connection until standard input closes."""
    from . import supervise

    print("ready", flush=True)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    for file in (listener, sys.stdin, wake_read):
        selector.register(file, selectors.EVENT_READ)
    supervisors: set[int] = set()
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                if not os.read(0, 4096):
                    return
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                supervisors.add(_fork(supervise.main, connection, [listener, wake_read, wake_write]))
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
    main(sys.argv[1], sys.argv[2:])
