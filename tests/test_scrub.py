"""What a run keeps names no folder and no host of the machine it ran on: a planted home, and a planted host."""

import html
import json
import os
import subprocess
import sys

import nbformat
import pytest

import fake_run
from capturebook.chain.folder import RunFolder
from capturebook.cli import main
from capturebook.probes import scrub
from capturebook.records import Question

FACTS = {**fake_run.PROVENANCE, "gpu": None, "no_gpu": "no NVIDIA driver"}


class Parameters:
    """Stands for a validated Params: the run folder only reads what it dumps."""

    def model_dump(self) -> dict:
        return {"run_dir": "", "preset": "planted", "subject": "mine.py:build"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder and a host's name that any trace of would give away."""
    path = tmp_path / "home" / "ada"
    path.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setattr("socket.gethostname", lambda: "ada-box-7")
    scrub._prefixes.cache_clear()
    scrub._pattern.cache_clear()
    yield path
    scrub._prefixes.cache_clear()
    scrub._pattern.cache_clear()


@pytest.fixture
def run(home, tmp_path) -> RunFolder:
    """A run that works: its server, a notebook and a probe have written, and the notebook ended in a traceback."""
    story = {"name": "planted", "title": "t", "story": "s", "arms": [], "rivals": []}
    made = RunFolder.create(tmp_path / "run", Parameters(), story, Question(), facts=FACTS)
    told = (
        f'  File "{home}/kernels/mine.py", line 3, in step\nOSError: {home}: refused by ada-box-7, not by ada-box-70\n'
    )
    for name in ("probe-server", "04_throughput_sweep", "0123456789ab", "progress"):
        (made.path / "logs" / f"{name}.log").write_text(told)
    cell = nbformat.v4.new_code_cell("step()", outputs=[nbformat.v4.new_output("stream", text=told)])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), made.path / "notebooks" / "04_throughput_sweep.ipynb")
    return made


def kept(run: RunFolder) -> dict[str, str]:
    files = [*run.path.glob("logs/*"), *run.path.glob("notebooks/*")]
    return {file.name: file.read_text() for file in files}


SAID = '  File "~/kernels/mine.py", line 3, in step\nOSError: ~: refused by host, not by ada-box-70\n'


def test_a_run_that_ends_keeps_no_folder_and_no_host(run, home):
    run.finish(stopped="Ctrl-C")
    files = kept(run)
    assert {text for name, text in files.items() if name.endswith(".log")} == {SAID} and len(files) == 5
    notebook = json.loads(files["04_throughput_sweep.ipynb"])
    assert "".join(notebook["cells"][0]["outputs"][0]["text"]) == SAID


def test_a_killed_runs_logs_are_scrubbed_by_who_reads_them_next_and_by_nobody_while_it_works(run, home, capsys):
    (run.path / "probes-1").mkdir()
    before = kept(run)
    RunFolder.open(run.path).tidy()
    assert kept(run) == before and (run.path / "probes-1").exists()
    run.close()  # as the kernel does for a process that is killed
    assert main(["report", str(run.path)]) == 0, capsys.readouterr().err
    assert str(home.parent) not in "".join(kept(run).values()) and kept(run)["probe-server.log"] == SAID
    assert not (run.path / "probes-1").exists()


def test_a_resumed_run_cleans_what_the_killed_one_left(run, home):
    run.close()
    again = RunFolder.resume(run.path, Parameters(), run.hypothesis(), Question(), facts=FACTS)
    assert kept(run)["probe-server.log"] == SAID
    again.close()


def test_a_host_called_like_a_word_is_left_in_the_text(home, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "compute")
    assert scrub.scrub("compute capability 9.0", "other") == "compute capability 9.0"


def test_the_root_of_the_file_system_is_no_folder_to_hide(home, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/", str(home / "lib")]))
    assert scrub.scrub(f"a/b in /etc/c, {home}/lib/d and {home}/e", "another") == "a/b in /etc/c, d and ~/e"


@pytest.mark.parametrize("name", ["jürgen", "a'b", 'q"t', "a&b", "back\\slash", "平"])
def test_a_folder_is_found_however_it_is_escaped(home, tmp_path, monkeypatch, name):
    """papermill writes parameters by `unicode_escape`, a notebook is JSON of that, and a page HTML of both."""
    folder = tmp_path / name
    monkeypatch.setenv("HOME", str(folder))
    path = f"{folder}/x"
    python = path.encode("unicode_escape").decode().replace('"', '\\"')
    written = [path, repr(path), ascii(path), json.dumps(path), json.dumps(path, ensure_ascii=False), python]
    written += [json.dumps(text) for text in written] + [html.escape(text) for text in written] + [folder.as_uri()]
    for text in written:
        clean = scrub.scrub(f"cd {text}; {text}", "another")
        assert tmp_path.name not in clean and clean.count("~") == 2, text


def test_a_folder_has_one_name_in_every_process():
    """The package's folder is also on the path of a probe: which of two names it gets must not turn on hashing."""
    code = "from capturebook.probes.scrub import *; print(relative(__import__('capturebook').__file__), scrub('%s'))"
    said = set()
    for seed in "01":
        path = str(scrub.PACKAGE.parent)
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code % scrub.__file__]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        said.add(done.stdout.strip())
    assert said == {"lib/capturebook/__init__.py lib/capturebook/probes/scrub.py"}


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path):
    log = tmp_path / "probe.log"
    log.write_bytes(b"first\n" + b"x" * (4 << 20) + b"\nlast\n")
    scrub.scrub_file(log, str(tmp_path), scrub.LOG_BYTES)
    text = log.read_text()
    assert text.startswith("first\n") and text.endswith("\nlast\n")
    assert len(text) < 2 << 20 and "bytes left out" in text
    log.write_text("short\n")
    scrub.scrub_file(log, str(tmp_path), scrub.LOG_BYTES)
    assert log.read_text() == "short\n"
