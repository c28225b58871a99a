"""Fork servers as their clients see them: one for each environment, started when first needed, proven, then used."""

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from . import lease, processes
from .scrub import scrub
from .tempfolder import SHORT, TempFolder

SHARED = "CAPTUREBOOK_SERVER"
"""Names the socket of a running server without extra variables, so that a chain's notebooks share one."""

START_SECONDS = 120.0

READY = b"ready\n"
"""What a server writes to the descriptor that it gets for this, once it listens and its modules are imported."""


class ServerError(RuntimeError):
    """A fork server did not start, or its proof failed. One line with the log's last words."""


class Server:
    """A fork server that this process owns: it ends when the owner does, or at close().

    `env` are variables to add; one with an empty value is taken out of the server's environment.
    """

    def __init__(self, env: dict[str, str], modules: tuple[str, ...], log: Path):
        # A socket's path may have 107 bytes; run folders are often deeper than that.
        self._folder = TempFolder("server", None if len(tempfile.gettempdir()) < SHORT else "/tmp")
        self.path = os.path.join(self._folder.path, "s")
        self._log = log
        self._ready, ready = os.pipe()
        # Its standard output is a module's that it preloads, to print to: it goes to the log, and tells us nothing.
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "capturebook.probes.forkserver", self.path, str(ready), *modules],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={k: v for k, v in {**_inherited(), **env}.items() if v or k not in env},
                pass_fds=(ready,),
                start_new_session=True,
            )
        os.close(ready)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Block until the server listens. Raises ServerError when it ends or takes too long."""
        if self._ready is None:
            return
        ended = os.pidfd_open(self.pid)
        with selectors.DefaultSelector() as selector:
            # Its end too: what a preloaded module started may hold the pipe open.
            for descriptor in (self._ready, ended):
                selector.register(descriptor, selectors.EVENT_READ)
            fired = {key.fd for key, _ in selector.select(START_SECONDS)}
        os.close(ended)
        said = os.read(self._ready, 16) if self._ready in fired else b""
        os.close(self._ready)
        self._ready = None
        if said == READY:
            return
        self.close()
        if not fired:
            raise ServerError(f"probe server: not ready after {START_SECONDS:g} s: {_last_line(self._log)}")
        code = self._process.returncode
        raise ServerError(f"probe server: ended with {code} before it was ready: {_last_line(self._log)}")

    def close(self) -> None:
        """End the server and every probe of it."""
        if self._process.poll() is None:
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                processes.kill_tree(self.pid)
                self._process.wait()
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
        self._folder.remove()


def at_once(gpu: bool) -> int:
    """How many correctness probes run side by side: on a GPU host three quarters of the cores, at most 12."""
    cores = len(os.sched_getaffinity(0))
    return min(12, max(1, cores * 3 // 4)) if gpu else max(1, cores - 1)


def _compile_threads() -> int:
    """Inductor's compile workers in a probe: its share of the cores, none beside the probe where that is small.

    With more than one, every process that compiles starts another that imports torch and forks a worker for each, by
    default as many as there are cores: a dozen probes at once then wait for each other's workers to start.
    """
    gpu = lease.gpu_uuid() is not None
    share = len(os.sched_getaffinity(0)) // at_once(gpu)
    return share if share >= (4 if gpu else 2) else 1


def _inherited() -> dict[str, str]:
    """This process's variables, less those that would place a server's caches or make it a client."""
    drop = (SHARED, "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    ours = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCHINDUCTOR_COMPILE_THREADS": str(_compile_threads())}
    env = ours | {k: v for k, v in os.environ.items() if k not in drop}
    package = str(Path(__file__).resolve().parents[2])
    parts = [package, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(parts))
    return env


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return scrub(lines[-1]) if lines else "its log is empty"


class Servers:
    """All servers of a pool, by environment and preloaded modules."""

    def __init__(self, log: Path):
        self._log = log
        self._owned: dict[tuple, Server] = {}
        self._shared_gone = False

    def start(self, env: dict[str, str], modules: tuple[str, ...] = ()) -> None:
        """Begin to start a server, without waiting for it; a shared one is used as it is."""
        key = (tuple(sorted(env.items())), modules)
        if key not in self._owned and not (self._shared(env, modules)):
            self._owned[key] = Server(env, modules, self._log)

    def connect(self, env: dict[str, str], modules: tuple[str, ...] = ()) -> socket.socket:
        """A connection on which one probe can be asked for. Raises ServerError.

        A shared server that is gone is replaced by one of our own, and an own one that died at the next call: one dead
        server costs the probes that ran in it, not those after them.
        """
        self.start(env, modules)
        key, path = (tuple(sorted(env.items())), modules), self._shared(env, modules)
        if not path:
            self._owned[key].wait_ready()
            path = self._owned[key].path
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if key not in self._owned:
                self._shared_gone = True
                return self.connect(env, modules)
            self._owned.pop(key).close()
            raise ServerError(f"probe server: {error.strerror or error}; {_last_line(self._log)}") from None
        return connection

    def _shared(self, env, modules) -> str | None:
        return None if env or modules or self._shared_gone else os.environ.get(SHARED)

    def close(self) -> None:
        for server in self._owned.values():
            server.close()
        self._owned.clear()


def ask(connection: socket.socket, request: dict) -> None:
    """Send a request; its answers are lines of JSON on the same connection."""
    connection.sendall(json.dumps(request).encode() + b"\n")


def start_shared(log: Path) -> Server:
    """Start the server that a chain's notebooks share; put its `path` into the variable SHARED of their environment."""
    return Server({}, (), log)
