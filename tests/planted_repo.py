"""A repository with notebooks of our own making: the real params/, and cells that a test names."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat

from capturebook.params import parameters_cell

REPO = Path(__file__).resolve().parents[1]


def notebook(folder: Path, name: str, *cells: str) -> Path:
    """A notebook with the parameters cell, a start cell and `cells`; the last concludes unless it is None."""
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(parameters_cell(), metadata={"tags": ["parameters"]})]
    start = f"from capturebook.chain import session\ns = session.start({name!r}, globals())"
    made.cells += [nbformat.v4.new_code_cell(source) for source in (start, *cells)]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.metadata["language_info"] = {"name": "python"}
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def repository(root: Path, **notebooks) -> Path:
    """A repository root: `notebooks` maps a name (a00_planted for 00_planted.ipynb) to its cells after the start."""
    (root / "outputs").mkdir(parents=True)
    (root / "params").symlink_to(REPO / "params")
    for name, cells in notebooks.items():
        notebook(root / "notebooks", name.removeprefix("a"), *cells)
    return root


def environment(root: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPO / "lib"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "CAPTUREBOOK_ROOT": str(root), **more}


def command(root: Path, *arguments: str, **more: str) -> subprocess.Popen:
    """`capturebook ARGUMENTS` on that repository, started in it."""
    return subprocess.Popen(
        [sys.executable, "-m", "capturebook", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env=environment(root, **more),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(root: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    process = command(root, *arguments, **more)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err
