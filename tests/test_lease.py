"""The lock of a GPU: which GPU it is, who shares it, who has it alone, and that nobody waits for ever."""

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from capturebook.probes import ProbePool, lease
from test_probes import Run, planted


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
    assert lease._first_visible(["GPU-aa11", "GPU-bb22"], visible) == gpu


def test_who_wants_the_gpu_alone_gets_it_though_others_keep_coming(tmp_path, monkeypatch):
    """flock by itself lets those who share it, one after the other, keep the lock for ever."""
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
    monkeypatch.setattr(lease.tempfile, "gettempdir", lambda: str(tmp_path))
    run = Run(tmp_path)
    with ProbePool(run, on_event=lambda text: None) as pool, lease.hold("GPU-test", False, print):
        pool.gpu = "GPU-test"
        (record,) = pool.run([planted("fine", exclusive=True, deadline=0.3)])
    assert record.status == "not_run"
    assert record.reason == "timing: other runs held the GPU for 0.3 s"
