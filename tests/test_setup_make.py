"""The Makefile and .ci/run: what they set up and call, from a folder with a space in its name. No network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LOGGER = """#!/bin/sh
# Stands in for an interpreter: notes how it was called, and makes the environment it is asked for.
echo "$0|$*|$PYTHONPATH|$JUPYTER_PATH" >> "$CALLS"
case "$*" in
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *find_spec*) exec "$REAL" "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path, repo):
    """A copy of the Makefile and what it reads, in a folder with a space, with loggers in place of interpreters."""
    root = tmp_path / "a checkout"
    root.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(repo / name, root)
    (root / ".ci").mkdir()
    shutil.copy(repo / ".ci" / "run", root / ".ci")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python3", "my python"):
        (tools / name).write_text(LOGGER)
        (tools / name).chmod(0o755)
    return root


def make(root: Path, *words: str, **variables: str) -> tuple[int, str, list[list[str]]]:
    """Exit code, all output, and the calls: [interpreter's name, arguments, PYTHONPATH, JUPYTER_PATH] each."""
    tools, calls = root.parent / "tools", root.parent / "calls"
    calls.write_text("")
    outer = ("PYTHONPATH", "JUPYTER_PATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHON", "ARGS", "PRESET", "PY")
    kept = {k: v for k, v in os.environ.items() if k not in outer}
    env = {**kept, "PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(calls), "REAL": sys.executable, **variables}
    done = subprocess.run(["make", *words], cwd=root, env=env, capture_output=True, text=True)
    said = [line.split("|") for line in calls.read_text().splitlines()]
    return done.returncode, done.stdout + done.stderr, [[c[0].removeprefix(f"{tools}/"), *c[1:]] for c in said]


def arguments(calls: list[list[str]]) -> list[str]:
    return [call[1] for call in calls if "sys.version_info" not in call[1] and "find_spec" not in call[1]]


def test_test_sets_up_a_venv_once_and_runs_lint_format_and_tests(checkout):
    install = "-m pip install --disable-pip-version-check -e .[dev]"
    ours = "lib tests notebooks examples"
    checks = [
        f"-m ruff check {ours}",
        f"-m ruff format --check {ours}",
        "-m pytest -n 3 --dist loadfile --no-loadscope-reorder",
    ]
    code, text, calls = make(checkout, "test")
    assert code == 0, text
    assert arguments(calls) == ["-m venv .venv", install, *checks]
    assert {call[0] for call in calls if call[1] in (install, *checks)} == {".venv/bin/python"}

    assert arguments(make(checkout, "test")[2]) == checks, "the second time there is nothing to set up"

    with open(checkout / "pyproject.toml", "a") as file:
        file.write("# another line\n")
    assert arguments(make(checkout, "test")[2]) == ["-m venv .venv", install, *checks], "pyproject.toml has changed"


def test_investigate_leaves_the_preset_to_the_doctor(checkout):
    code, text, calls = make(checkout, "investigate")
    assert code == 0, text
    assert (calls[-1][0], calls[-1][1]) == (".venv/bin/python", "-m capturebook run")


def test_investigate_takes_a_preset_and_arguments(checkout):
    calls = make(checkout, "investigate", "PRESET=own_kernel", "ARGS=--set seed=3")[2]
    assert arguments(calls)[-1] == "-m capturebook run own_kernel --set seed=3"


def test_a_given_python_is_used_as_it_is(checkout):
    import ipykernel

    mine = str(checkout.parent / "tools" / "my python")
    code, text, calls = make(checkout, "test", f"PYTHON={mine}", PYTHONPATH="/elsewhere")
    assert code == 0, text
    assert not (checkout / ".venv").exists()
    assert arguments(calls)[0] == "-m capturebook.requirements check test lint"
    assert not any("venv" in call[1] or "pip" in call[1].split() for call in calls)
    assert {call[0] for call in calls} == {"my python"}
    beside = Path(ipykernel.__file__).parents[1] / "share" / "jupyter"
    assert {call[2] for call in calls if call[1].startswith("-m")} == {f"{checkout}/lib:/elsewhere"}
    assert {call[3] for call in calls if call[1].startswith("-m")} == {str(beside)}


def test_a_given_python_without_a_package_stops_with_one_line(checkout, repo):
    """The bare interpreter this one was made from stands for a host where nothing was installed."""
    shutil.copytree(repo / "lib", checkout / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("notebooks", "params"):
        (checkout / name).mkdir()
    bare = checkout.parent / "tools" / "bare python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    code, text, _ = make(checkout, "investigate", f"PYTHON={bare}")
    lines = [line for line in text.splitlines() if not line.startswith("make")]
    assert code != 0 and len(lines) == 1, text
    assert "missing" in lines[0] and "torch" in lines[0] and "papermill" in lines[0]


def test_an_interpreter_that_is_too_old_is_one_line(checkout):
    old = "#!/bin/sh\ncase \"$*\" in *version_info*) echo 'Python 3.11 or newer is needed' >&2; exit 1;; esac\n"
    (checkout.parent / "tools" / "python3").write_text(old)
    code, text, _ = make(checkout, "test")
    assert code != 0 and "Python 3.11 or newer is needed" in text and not (checkout / ".venv").exists()


def test_an_installation_that_fails_is_not_taken_for_done(checkout):
    fails = LOGGER + 'case "$*" in *"pip install"*) exit 1 ;; esac\n'
    (checkout.parent / "tools" / "python3").write_text(fails)
    assert make(checkout, "test")[0] != 0
    code, _, calls = make(checkout, "test")
    assert code != 0 and any("pip install" in call[1] for call in calls), "the next call must try again"


def test_wheelhouse_and_lab(checkout):
    assert arguments(make(checkout, "wheelhouse", "PY=3.12")[2])[-1] == (
        "-m capturebook.requirements wheelhouse 3.12 .wheelhouse"
    )
    root = ["--allow-root"] if os.getuid() == 0 else []  # Jupyter refuses to start without
    assert arguments(make(checkout, "lab")[2])[-1].split() == ["-m", "jupyterlab", "--ServerApp.root_dir=.", *root]


def test_make_alone_says_what_there_is(checkout):
    code, text, calls = make(checkout)
    assert code == 0 and calls == []
    assert all(f"make {target}" in text for target in ("investigate", "test", "lab", "wheelhouse"))


def test_ci_calls_make_test_from_the_repository(checkout):
    tools = checkout.parent / "tools"
    for name in ("make", "chromium", "g++"):
        (tools / name).write_text('#!/bin/sh\necho "$0 $* in $PWD"\n')
        (tools / name).chmod(0o755)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(tools / "make", checkout / ".venv" / "bin" / "python")
    env = {k: v for k, v in os.environ.items() if k != "PYTHON"} | {"PATH": f"{tools}:{os.environ['PATH']}"}

    def ci(**more) -> list[str]:
        command = [str(checkout / ".ci" / "run")]
        done = subprocess.run(command, cwd="/", env={**env, **more}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    ready, install, test = ci()
    assert (ready, test) == (f"{tools}/make ready in {checkout}", f"{tools}/make test in {checkout}")
    assert "pip install" in install and ".[dev,serving]" in install
    assert ci(PYTHON="python3") == [test], "a named interpreter is used as it is"
