"""What probes leave to later ones: compiled code, never the outcome of a benchmark."""

import shutil
from pathlib import Path

from triton import knobs
from triton.runtime.cache import get_cache_manager

from capturebook.probes import caches


def made(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_compiled_code_is_shared_and_tuning_is_not(tmp_path):
    made(
        tmp_path / "scratch",
        "triton/ab/kernel.cubin",
        "triton/ab/kernel.autotune.json",
        "inductor/xy/code.py",
        "inductor/cache/9f3a",
    )
    caches.merge(tmp_path / "scratch", tmp_path / "store")
    assert caches.prepare(tmp_path / "next", tmp_path / "store") == {"triton": 1, "inductor": 1}
    assert (tmp_path / "next" / "triton" / "ab" / "kernel.cubin").is_file()
    assert (tmp_path / "next" / "inductor" / "xy" / "code.py").is_file()


def test_what_is_there_already_stays_as_it_is(tmp_path):
    made(tmp_path / "scratch", "triton/ab/kernel.cubin")
    made(tmp_path / "store", "triton/ab/kernel.cubin")
    (tmp_path / "store" / "triton" / "ab" / "kernel.cubin").write_text("older")
    caches.merge(tmp_path / "scratch", tmp_path / "store")
    assert (tmp_path / "store" / "triton" / "ab" / "kernel.cubin").read_text() == "older"


def test_triton_finds_a_kernel_in_a_copy_when_the_process_that_compiled_it_is_gone(tmp_path):
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "scratch" / "triton")
        manager = get_cache_manager("ab12")
        files = {name: manager.put(name, name) for name in ("kernel.json", "kernel.cubin")}
        manager.put_group("kernel.json", files)
        made(Path(manager.cache_dir), "tmp.pid_9_killed/__grp__torn.json")
        caches.merge(tmp_path / "scratch", tmp_path / "store")
        shutil.rmtree(tmp_path / "scratch")
        caches.prepare(tmp_path / "next", tmp_path / "store")
        knobs.cache.dir = str(tmp_path / "next" / "triton")
        found = get_cache_manager("ab12").get_group("kernel.json")
    assert found.keys() == files.keys() and all(path.startswith(str(tmp_path / "next")) for path in found.values())
    assert [Path(path).read_text() for path in found.values()] == list(files)
