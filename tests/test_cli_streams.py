"""Ctrl-C while the command line is still being imported, and standard streams that are closed, full or not read."""

import json
import os
import subprocess
import sys

import psutil
import pytest

import planted_repo


def interruptible():
    """pytest in the background of a shell has SIGINT ignored."""
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_while_it_is_imported_is_one_line(tmp_path):
    # Found before the real one; the command line imports it at its beginning.
    (tmp_path / "pydantic.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    command = [sys.executable, "-m", "capturebook", "doctor"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, preexec_fn=interruptible)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "capturebook: stopped by Ctrl-C\n")


def command(tmp_path, *words, **options):
    """A command whose stdout is what `options` say; its stderr is captured. Python's own buffering is as at a shell."""
    env = planted_repo.environment(tmp_path)
    env.pop("PYTHONUNBUFFERED", None)
    line = [sys.executable, "-m", "capturebook", *words]
    return subprocess.run(line, env=env, text=True, timeout=60, **{"stderr": subprocess.PIPE, **options})


@pytest.mark.parametrize("words", ["params --json", "--help"])
@pytest.mark.parametrize(
    ("where", "says"),
    [("full", "No space left on device"), ("closed", "Bad file descriptor"), ("not read", "Broken pipe")],
)
def test_a_result_that_cannot_be_written_is_one_line_and_exit_3(tmp_path, words, where, says):
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, os.fdopen(writer, "w") as unread:
        options = {"full": {"stdout": full}, "not read": {"stdout": unread}}.get(where, {})
        done = command(tmp_path, *words.split(), preexec_fn=(lambda: os.close(1)) if not options else None, **options)
    if (where, words) == ("closed", "--help"):
        # argparse itself then shows nothing, and says nothing.
        assert "Traceback" not in done.stderr
        return
    said = f"capturebook: standard output: {says}; the result was not written whole\n"
    assert (done.returncode, done.stderr) == (3, said)


def test_without_stderr_the_result_on_stdout_is_whole_and_alone(tmp_path):
    root = planted_repo.repository(tmp_path, a00_one=[])
    done = command(root, "launches", "--json", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    told = command(root, "launches", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (told.returncode, told.stdout) == (0, "")


def test_what_was_asked_for_goes_to_stdout_and_a_reader_may_leave(tmp_path):
    """`| grep`, `> file` and `| head -1` of what people read; the exit status is the command's own."""
    told = command(tmp_path, "params", stdout=subprocess.PIPE)
    assert (told.returncode, told.stderr) == (0, "") and "heads = 64" in told.stdout
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        left = command(tmp_path, "params", stdout=unread)
    assert (left.returncode, left.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        lost = command(tmp_path, "params", stdout=full)
    assert (lost.returncode, lost.stderr.count("\n")) == (3, 1)
    code = "from capturebook.cli.common import tell; tell('25.0 \\u00b5s')"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"25.0 \\xb5s\n")


def test_a_closed_stream_is_not_the_next_file_that_is_opened(tmp_path):
    code = (
        "from capturebook.__main__ import _fill_descriptors as fill; import os, subprocess\n"
        f"fill(); file = open({str(tmp_path / 'kept')!r}, 'w'); file.write('ours'); file.close()\n"
        "file = open(file.name, 'a'); subprocess.run(['sh', '-c', 'echo theirs; echo theirs >&2'])\n"
    )
    closed = lambda: [os.close(number) for number in range(3)]  # noqa: E731
    assert subprocess.run([sys.executable, "-c", code], preexec_fn=closed, timeout=60).returncode == 0
    assert (tmp_path / "kept").read_text() == "ours"


# Says nothing until it is told to, and then what nobody reads.
TALKS = """\
import pathlib, time
while not pathlib.Path(s.run.path, "go").exists():
    time.sleep(0.05)
s.say("nobody reads this")
time.sleep(600)
"""


def test_a_run_whose_reader_is_gone_ends_and_leaves_no_process(tmp_path):
    root = planted_repo.repository(tmp_path, a00_one=[TALKS])
    process = planted_repo.command(root, "run", "cpu")
    for line in process.stderr:
        if "run outputs/" in line:
            break
    (run,) = (root / "outputs").iterdir()
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3
    process.stderr.close()
    (run / "go").touch()
    assert process.wait(timeout=60) == 3
    assert psutil.wait_procs(children, timeout=5)[1] == []
