"""The runner against planted deaths: what happened is told as what it is, and nothing is left running."""

import fcntl
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from capturebook.probes import Probe, ProbePool, lease, processes, servers
from capturebook.probes.scrub import LOG_BYTES, scrub_file

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
    _until(lambda: not processes.descendants(server.pid), 10)


def test_system_exit_inside_the_step_is_a_failure_with_its_root(pool):
    (record,) = pool.run([planted("exit_zero")])
    assert (record.status, record.root.type) == ("fail", "SystemExit")


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


def test_variables_act_only_in_a_server_started_with_them(pool):
    """TORCHINDUCTOR_CUDAGRAPHS=1 is seen to act: Inductor's own configuration is read back in the child."""
    plain, turned_on = pool.run(
        [planted("inductor_config"), planted("inductor_config", env={"TORCHINDUCTOR_CUDAGRAPHS": "1"})]
    )
    assert plain.payload["cudagraphs"] is False
    assert turned_on.payload["cudagraphs"] is True


def test_a_probe_gets_its_share_of_the_cores_for_inductor_unless_told_otherwise(pool):
    shared, told = pool.run(
        [planted("inductor_config"), planted("inductor_config", env={"TORCHINDUCTOR_COMPILE_THREADS": "7"})]
    )
    side_by_side = servers.at_once(lease.gpu_uuid() is not None)
    assert shared.payload["threads"] * side_by_side <= max(len(os.sched_getaffinity(0)), side_by_side)
    assert told.payload["threads"] == 7


def test_server_that_cannot_start_makes_its_probes_not_run(pool):
    (record,) = pool.run([planted("fine", preload=("no_such_module",))])
    assert record.status == "not_run"
    assert "no_such_module" in record.reason


def test_sigkill_of_the_client_ends_server_probe_and_grandchildren(tmp_path):
    pid_file = tmp_path / "pids"
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from test_probes import Run, planted
from capturebook.probes import ProbePool
with ProbePool(Run(Path({str(tmp_path)!r}))) as pool:
    pool.run([planted("hang_with_grandchild", args={{"pid_file": {str(pid_file)!r}}}, deadline=60)])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    client = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)
    _until(lambda: pid_file.exists() and len(pid_file.read_text().split()) == 2, 60)
    family = processes.descendants(client.pid) | {int(pid) for pid in pid_file.read_text().split()}
    assert len(family) >= 4, "server, supervisor, child and grandchild"
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    _until(lambda: not any(_running(pid) for pid in family), 10)


def test_sigkill_of_the_server_ends_its_probes(tmp_path):
    pid_file = tmp_path / "pids"
    run = Run(tmp_path)
    code = f"import os, signal, time, pathlib; p = pathlib.Path({str(pid_file)!r})\n"
    code += "while not p.exists() or len(p.read_text().split()) < 2: time.sleep(0.05)\n"
    with ProbePool(run, on_event=lambda text: None) as pool:
        pool.run([planted("fine")])
        (server,) = pool._servers._owned.values()
        code += f"os.kill({server.pid}, signal.SIGKILL)"
        killer = subprocess.Popen([sys.executable, "-c", code])
        (record,) = pool.run([planted("hang_with_grandchild", args={"pid_file": str(pid_file)}, deadline=30.0)])
        killer.wait()
    assert record.status == "fail"
    assert "supervisor" in record.reason
    _until(lambda: not any(_running(int(pid)) for pid in pid_file.read_text().split()), 10)


def _until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)


def _running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("visible", "gpu"),
    [
        (None, "GPU-aa11"),
        ("1", "GPU-bb22"),
        ("1,0", "GPU-bb22"),
        ("GPU-bb", "GPU-bb22"),
        ("", None),
        ("-1", None),
        ("7", None),
        ("GPU-", None),
    ],
)
def test_the_leased_gpu_is_the_one_that_cuda_calls_zero(visible, gpu):
    from capturebook.probes.lease import _first_visible

    assert _first_visible(["GPU-aa11", "GPU-bb22"], visible) == gpu


def test_who_wants_the_gpu_alone_gets_it_though_others_keep_coming(tmp_path, monkeypatch):
    """flock by itself lets those who share it, one after the other, keep the lock for ever."""
    from capturebook.probes import lease

    monkeypatch.setattr(lease.tempfile, "gettempdir", lambda: str(tmp_path))
    order, said, stop = [], [], threading.Event()
    hold = functools.partial(lease.hold, "GPU-test", say=said.append)

    def shares(name):
        while not stop.is_set():
            with hold(exclusive=False):
                order.append(name)
                time.sleep(0.3)

    def alone():
        with hold(exclusive=True, patience=20):
            order.append("alone")
            assert lease_is_taken(tmp_path)
        stop.set()

    threads = [threading.Thread(target=shares, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
        time.sleep(0.15)
    alone()
    for thread in threads:
        thread.join()
    assert {"a", "b", "alone"} == set(order)
    assert any(text.startswith("waiting for GPU GPU-test") for text in said)
    with hold(exclusive=False), pytest.raises(lease.Busy), hold(exclusive=True, patience=0.2):
        pass


def lease_is_taken(folder) -> bool:
    """By the lock file itself: another open of it cannot share."""
    with open(folder / "capturebook-GPU-test.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_lock_that_another_user_made_is_held_too():
    """Files that this process may read and not write: those of another user, and for root one who is nobody."""
    code = """if True:
        import os, sys
        from capturebook.probes import lease
        lease.tempfile.gettempdir = lambda: sys.argv[1]
        if os.getuid() == 0:
            os.setuid(65534)
        for exclusive in (False, True):
            with lease.hold("GPU-test", exclusive, print):
                print("held", end=" ")
    """
    with tempfile.TemporaryDirectory() as folder:  # pytest lets nobody into its own
        os.chmod(folder, 0o755)
        for name in ("lock", "gate"):
            path = Path(folder) / f"capturebook-GPU-test.{name}"
            path.touch()
            path.chmod(0o444)
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["held", "held"], done.stderr


def test_a_timing_that_cannot_have_the_gpu_to_itself_did_not_run(tmp_path, monkeypatch):
    from capturebook.probes import lease

    monkeypatch.setattr(lease.tempfile, "gettempdir", lambda: str(tmp_path))
    run = Run(tmp_path)
    with ProbePool(run, on_event=lambda text: None) as pool, lease.hold("GPU-test", False, print):
        pool.gpu = "GPU-test"
        (record,) = pool.run([planted("fine", exclusive=True, deadline=0.3)])
    assert record.status == "not_run"
    assert record.reason == "timing: other runs held the GPU for 0.3 s"


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path):
    log = tmp_path / "probe.log"
    log.write_bytes(b"first\n" + b"x" * (4 << 20) + b"\nlast\n")
    scrub_file(log, str(tmp_path), LOG_BYTES)
    text = log.read_text()
    assert text.startswith("first\n") and text.endswith("\nlast\n")
    assert len(text) < 2 << 20 and "bytes left out" in text
    log.write_text("short\n")
    scrub_file(log, str(tmp_path), LOG_BYTES)
    assert log.read_text() == "short\n"


def test_a_shared_server_that_is_gone_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv(servers.SHARED, str(tmp_path / "gone"))
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        first, second = pool.run([planted("fine", seed=1), planted("fine", seed=2)])
    assert (first.status, second.status) == ("pass", "pass")


def test_a_killed_server_costs_no_later_probe(tmp_path):
    with ProbePool(Run(tmp_path), on_event=lambda text: None) as pool:
        (before,) = pool.run([planted("fine", seed=1)])
        (server,) = pool._servers._owned.values()
        os.kill(server.pid, signal.SIGKILL)
        _until(lambda: not _running(server.pid), 10)
        (lost,) = pool.run([planted("fine", seed=2)])
        (after,) = pool.run([planted("fine", seed=3)])
    assert (before.status, lost.status, after.status) == ("pass", "not_run", "pass")
    assert "probe server" in lost.reason
