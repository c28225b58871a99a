"""The chain on a GPU: killed in the middle it leaves nothing on the card, and the run goes on afterwards."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from capturebook.probes.lease import gpu_uuid
from capturebook.records import read

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


def used_mib() -> int:
    """Memory in use on the GPU as the driver sees it."""
    import pynvml

    pynvml.nvmlInit()
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid())).used >> 20
    finally:
        pynvml.nvmlShutdown()


def until(condition, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)


def arms(records) -> list:
    """The records of arms so far; the file need not be there yet."""
    return [r for r in read(records)[0] if r.kind == "step" and r.role == "arm"] if records.exists() else []


def test_killed_in_the_middle_it_frees_the_gpu_and_resumes(repo, tmp_path):
    run = tmp_path / "killed"
    command = [sys.executable, "-m", "capturebook", "run"]
    before = used_mib()
    chain = subprocess.Popen([*command, "h200", "--only", "00,02", "--run-dir", str(run)], cwd=repo)
    records = run / "records.jsonl"
    until(lambda: arms(records) and used_mib() > before + 600, 90, "an arm's record while others still run")
    os.kill(chain.pid, signal.SIGKILL)
    chain.wait()
    until(lambda: used_mib() < before + 100, 20, "the GPU's memory coming back")
    info = json.loads((run / "run.json").read_text())
    kept = {r.probe: r.started for r in arms(records)}
    controls = sum(r.role == "control" for r in read(records)[0])
    resumed = subprocess.run([*command, "--run-dir", str(run)] + ["--only", "00,02"], cwd=repo, timeout=150)
    assert resumed.returncode == 0
    after = read(records)[0]
    assert {r.nonce for r in after} == {info["nonce"]}
    assert sum(r.role == "control" for r in after) == controls + 3, "controls are repeated"
    for probe, started in kept.items():
        assert [r.started for r in after if r.probe == probe] == [started], "what was decided is kept"
