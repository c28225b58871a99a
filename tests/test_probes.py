"""The runner against planted deaths: what happened is told as what it is, and nothing is left running."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from capturebook.probes import Probe, ProbePool, lease, processes, servers

HERE = Path(__file__).parent


class Run:
    """The part of a run folder that a pool uses."""

    name, nonce = "test", "nonce-of-this-run"

    def __init__(self, path):
        self.path, self.appended = path, []

    def append(self, record):
        record.to_line()
        self.appended.append(record)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    with ProbePool(Run(tmp_path_factory.mktemp("run")), parallel=3, on_event=lambda text: None) as pool:
        yield pool


def planted(name, **kw):
    return Probe(kind="build", job=f"planted_jobs:{name}", **{"deadline": 20.0, **kw})


def test_a_child_finds_triton_hashed(pool):
    """The first launch would hash 400 MB of libtriton.so for its cache key, in every child anew."""
    (record,) = pool.run([planted("triton_is_hashed")])
    assert record.payload == {"already": 1}, record.reason or record.root


@pytest.mark.parametrize(
    ("job", "status", "says", "stage"),
    [
        ("leave", "fail", "died: exit code 7 at warmup", "warmup"),
        ("leave_a_copy", "fail", "died: exit code 7 at warmup", "warmup"),
        ("forge", "fail", "the result is another process's", "warmup"),
        ("killed_after_its_result", "fail", "died: signal 9 (SIGKILL) at launch", "launch"),
        ("kill_self", "fail", "died: signal 9 (SIGKILL) at capture", "capture"),
        ("segfault", "fail", "died: signal 11 (SIGSEGV) at replay", "replay"),
        ("stale_result", "not_run", "another run's", "launch"),
        ("torn_result", "not_run", "does not parse", "launch"),
        ("unknown_field", "not_run", "speed", "launch"),
        ("speed_without_correctness", "not_run", "carries no samples", "launch"),
        ("garbage", "wrong", "the job says so", "launch"),
    ],
)
def test_death_is_told_as_what_it_is(pool, job, status, says, stage):
    (record,) = pool.run([planted(job)])
    assert (record.status, record.stage) == (status, stage)
    assert says in record.reason


def test_hang_is_a_timeout_and_names_its_stage(pool):
    (server,) = pool._servers._owned.values()
    quick, deaf = pool.run([planted("hang", deadline=1.0), planted("hang_deaf", deadline=1.1)])
    assert quick.status == deaf.status == "timeout"
    assert "at capture" in quick.reason
    until(lambda: not processes.descendants(server.pid), 10)


def test_system_exit_inside_the_step_is_a_failure_with_its_root(pool):
    (record,) = pool.run([planted("exit_zero")])
    assert (record.status, record.root.type) == ("fail", "SystemExit")


def test_a_step_whose_configuration_was_not_read_back_did_not_run(pool):
    passed, failed = pool.run(
        [replace(planted(job), kind="step", args={"device": "cpu"}) for job in ("fine", "unread")]
    )
    assert passed.status == failed.status == "not_run"
    assert passed.reason.endswith("was not read back; it ended as pass at launch")
    assert failed.reason.endswith("it ended as fail at capture: RuntimeError: two")


def test_nan_never_reaches_a_record(pool):
    (record,) = pool.run([planted("nan_payload")])
    assert record.status == "fail"
    assert "without a result" in record.reason


def test_a_record_names_no_folder_of_the_machine(pool):
    (record,) = pool.run([planted("names_folders")])
    assert record.caveats == ["~/kernels/mine.py", "run/logs"]
    assert record.payload == {"deep": [{"said": "in ~/kernels/mine.py", "n": 1}]}


def test_only_processes_that_still_ran_are_told_as_left_behind():
    """A compile worker that has ended, and that its own parent has not collected, is no stranger."""
    code = """if True:
        import os, sys, time
        from capturebook.probes import processes
        processes.become_subreaper()
        read, write = os.pipe()
        if os.fork() == 0:
            ended = os.fork()
            if ended == 0:
                os._exit(0)
            os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
            os.write(write, b".")
            time.sleep(60)
        os.read(read, 1)
        found = len(processes.descendants(os.getpid()))
        print(found, len(processes.kill_descendants()), len(processes.descendants(os.getpid())))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2", "1", "0"], done.stderr


def test_grandchildren_are_ended_and_reported(pool):
    (record,) = pool.run([planted("grandchildren")])
    assert record.status == "pass"
    assert any("2 processes were left behind" in caveat for caveat in record.caveats)
    assert not any(psutil.pid_exists(pid) for pid in record.payload["pids"])


def test_chain_keeps_the_root_and_names_its_code(pool):
    (record,) = pool.run([planted("chained")])
    assert [link.code for link in record.chain] == [901, 905]
    assert record.root.name == "cudaErrorStreamCaptureIsolation"
    assert record.root.frames[-1].function == "chained"


def test_each_probe_has_a_process_of_its_own(pool):
    records = pool.run([planted("fine", seed=s) for s in range(4)])
    assert len({r.payload["pid"] for r in records}) == 4
    assert len({r.payload["parent"] for r in records}) == 4


def test_records_are_appended_once_each_with_the_nonce(pool):
    before = len(pool.run_folder.appended)
    pool.run([planted("fine", seed=11), planted("fine", seed=11), planted("leave", seed=12)])
    new = pool.run_folder.appended[before:]
    assert sorted(r.status for r in new) == ["fail", "pass"]
    assert {r.nonce for r in new} == {"nonce-of-this-run"}


TOLD = {"TORCHINDUCTOR_CUDAGRAPHS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "7"}
"""Of two tests, which so share the server that is started with them."""


def test_variables_act_only_in_a_server_started_with_them(pool):
    """TORCHINDUCTOR_CUDAGRAPHS=1 is seen to act: Inductor's own configuration is read back in the child."""
    plain, turned_on = pool.run([planted("inductor_config"), planted("inductor_config", env=TOLD)])
    assert plain.payload["cudagraphs"] is False
    assert turned_on.payload["cudagraphs"] is True


def test_a_probe_gets_its_share_of_the_cores_for_inductor_unless_told_otherwise(pool):
    shared, told = pool.run([planted("inductor_config"), planted("inductor_config", env=TOLD)])
    side_by_side = servers.at_once(lease.gpu_uuid() is not None)
    assert shared.payload["threads"] * side_by_side <= max(len(os.sched_getaffinity(0)), side_by_side)
    assert told.payload["threads"] == 7


def test_server_that_cannot_start_makes_its_probes_not_run(pool):
    (record,) = pool.run([planted("fine", preload=("no_such_module",))])
    assert record.status == "not_run"
    assert "no_such_module" in record.reason


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
