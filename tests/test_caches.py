"""What probes leave to later ones: compiled code, never the outcome of a benchmark."""

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
