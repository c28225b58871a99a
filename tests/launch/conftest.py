"""A scratch checkout to launch from, on this machine and over a real sshd."""

from pathlib import Path

import launch_bench
import psutil
import pytest
from launch_bench import Bench

from capturebook.launch import readiness

# As in tests/conftest.py: `from conftest import REPO` finds whichever of the two was imported last.
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    if launch_bench.SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    server = launch_bench.Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture(params=["here", "ssh"])
def bench(request, tmp_path, monkeypatch):
    made = Bench(tmp_path, None if request.param == "here" else "gpu1")
    if made.host:
        config = request.getfixturevalue("sshd").config
        monkeypatch.setenv("CAPTUREBOOK_SSH", f"ssh -F {config}")
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    # Tests of servers that die set it back.
    monkeypatch.setattr(readiness, "SETTLE", 0.3)
    yield made
    assert not made.end_all()
    # Neither a connection nor a forward stays.
    assert not [child.cmdline() for child in psutil.Process().children() if child.name() == "ssh"]
