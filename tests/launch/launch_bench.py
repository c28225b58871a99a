"""What the launcher's tests share: a checkout of its own, launches from small scripts, a real sshd on loopback."""

import contextlib
import getpass
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from capturebook import launch as launching

here_only = pytest.mark.parametrize("bench", ["here"], indirect=True)
ssh_only = pytest.mark.parametrize("bench", ["ssh"], indirect=True)
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Bench:
    """A scratch checkout and what was launched from it. `host` is None or the sshd's name."""

    def __init__(self, root: Path, host: str | None = None):
        self.root, self.host = root, host
        self.events: list[str] = []
        for name in ("notebooks", "params", "local", "remote home"):
            (root / name).mkdir(exist_ok=True)

    def write(self, name: str, text: str | bytes) -> Path:
        """A local file beside the launch file."""
        path = self.root / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def spec(self, **fields):
        return launching.validated({"name": "t", "source": str(self.root / "local" / "t.yaml"), **fields})

    def launch(self, **fields):
        """Launch; a record is returned, its events are in `events`."""
        return launching.launch(self.spec(**fields), self.host, self.events.append)

    def script(self, text: str | bytes, name: str = "t.sh", **fields):
        self.write(name, text)
        return self.launch(script=name, **fields)

    def cli(self, *args: str, **options) -> subprocess.Popen:
        """The command line as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "capturebook", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            # pytest in the background of a shell has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            cwd=options.pop("cwd", self.root / "local"),
            text=True,
            **options,
        )

    def ids(self) -> list[str]:
        return [entry.id for entry in launching.entries()]

    def running(self) -> list[str]:
        """Command lines of processes that carry a nonce of one of our launches, or keep one."""
        return list(self._ours().values())

    def end_all(self) -> list[str]:
        """Kill what is left of our launches, as a test that failed leaves it; returns what was."""
        found = self._ours()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return list(found.values())

    def _ours(self) -> dict[int, str]:
        nonces = [entry.info["nonce"].encode() for entry in launching.entries()]
        found = {}
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                environment = (proc / "environ").read_bytes()
                state = (proc / "stat").read_text().rpartition(")")[2].split()[0]
                line = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            ours = any(b"CAPTUREBOOK_LAUNCH=" + nonce in environment for nonce in nonces)
            if (ours or str(self.root) in line and "keeper.sh" in line) and state not in "ZX":
                found[int(proc.name)] = line
        return found


def log_of(bench: Bench, record) -> list[str]:
    """The program's lines in a launch's log as it is kept on this machine; the keeper's own comes before them."""
    first, *lines = (bench.root / "outputs/launches" / record.run / "logs/program.log").read_text().splitlines()
    assert first == f"capturebook launch {record.nonce}"
    return lines


def stage(record, name: str) -> dict:
    """A stage of a launch's record."""
    return next(entry for entry in record.payload["stages"] if entry["name"] == name)


def killed(at: str, start: Callable[[Callable[[str], None]], object]) -> None:
    """Run start(on_event) in a process of its own that kills itself with SIGKILL at the first event that begins so."""

    def seen(text):
        if text.startswith(f"{at} "):
            os.kill(os.getpid(), signal.SIGKILL)

    launcher = multiprocessing.get_context("fork").Process(target=start, args=(seen,))
    launcher.start()
    launcher.join(60)
    assert launcher.exitcode == -signal.SIGKILL


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Sshd:
    """A real sshd on loopback with its own host key, and the ssh configuration that reaches it as `gpu1`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        host_key = (folder / "host_key.pub").read_text().split()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key[0]} {host_key[1]}\n")
        home = folder / "remote home"
        home.mkdir()
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nStrictModes no\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nUsePAM no\n"
            f'PermitRootLogin prohibit-password\nMaxStartups 100\nSetEnv "HOME={home}"\n'
        )
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"Host gpu1\n HostName 127.0.0.1\n Port {self.port}\n User {getpass.getuser()}\n IdentitiesOnly yes\n"
            f" IdentityFile {folder}/user_key\n UserKnownHostsFile {folder}/known_hosts\n GlobalKnownHostsFile none\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = open(folder / "sshd.log", "wb")
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=self.log)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"sshd does not listen: {(self.folder / 'sshd.log').read_text()}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


SERVER = """\
import http.server, os, socket, sys, time
died = len(sys.argv) > 2 and sys.argv[2]
began = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        began.append(time.monotonic())
        warm = time.monotonic() - began[0] > float(os.environ.get("WARM", "0.2"))
        asked = self.path.removeprefix("/work") + self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if asked not in ("/health", os.environ.get("ASKED", "")):
            return self.send_error(403)
        code = 200 if self.path == "/health" or warm else 503
        body = f"worked for {os.environ['CAPTUREBOOK_LAUNCH']}".encode() if warm else b"ok"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if died and warm and self.path != "/health":
            self.wfile.flush()
            os._exit(7)
    do_POST = do_GET
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in os.environ.get("BIND", "") else socket.AF_INET
if os.environ.get("DAEMON") and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
elif os.environ.get("DAEMON"):
    time.sleep(60)
server = Server((os.environ.get("BIND", "127.0.0.1"), int(sys.argv[1])), Handler)
print("listening", flush=True)
server.serve_forever()
"""
READY = {"url": "http://127.0.0.1:{port}/work", "expect": "worked for {nonce}"}


def serve(bench, *args, **fields):
    """Launch the server above; with an argument it dies once it has worked."""
    bench.write("server.py", SERVER)
    fields = {"port": "auto", "ready": READY, "deadline": 30, **fields}
    return bench.launch(script="server.py", interpreter=[sys.executable], args=["{port}", *args], **fields)


def toolbox(bench, monkeypatch, *without: str, **scripts: str) -> None:
    """A PATH on which the host has few tools: those the launcher needs, and `scripts` in place of some."""
    box = bench.root / "tools"
    box.mkdir()
    needed = "setsid sha256sum head tail dd mkfifo stat env tr cat mkdir mv chmod rm sleep uname date ls readlink sh"
    for name in needed.split():
        if name not in without:
            (box / name).symlink_to(shutil.which(name))
    for name, text in scripts.items():
        (box / name).unlink(missing_ok=True)
        (box / name).write_text(text)
        (box / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(box))
