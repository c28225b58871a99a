"""The parameters cell: what papermill makes of it, and names that nobody declared."""

import ast
import json
import logging
import subprocess
import sys

import nbformat
import papermill
import pytest
from papermill.translators import PythonTranslator

from capturebook.params import (
    Params,
    describe,
    load_preset,
    parameters_cell,
    preset_names,
    stale_cells,
    unknown_names,
    validate,
    write_cells,
)

CHAIN = [
    "00_hypothesis",
    "01_kernel_build",
    "02_graph_capture",
    "03_compile_check",
    "04_throughput_sweep",
    "05_verdict",
    "explorer",
]
CHECK = "from capturebook.params import unknown_names, validate, Params\nprint('unknown', unknown_names(globals()))"


def write(path, *cells: tuple[str, list[str]]):
    """A notebook of code cells, each (source, tags)."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}},
        cells=[nbformat.v4.new_code_cell(source, metadata={"tags": tags}) for source, tags in cells],
    )
    nbformat.write(notebook, path)
    return path


def test_papermill_reads_every_parameter_with_type_default_and_help(caplog):
    with caplog.at_level(logging.WARNING, "papermill"):
        seen = {p.name: p for p in PythonTranslator.inspect({"source": parameters_cell()})}
    assert list(seen) == list(Params.model_fields)
    assert not caplog.records
    for row in describe():
        mine = seen[row["name"]]
        assert mine.inferred_type_name == row["type"] and mine.help.startswith(row["help"])
        assert ast.literal_eval(mine.default) == row["default"]
        assert type(ast.literal_eval(mine.default)) is type(row["default"])


def test_the_cell_is_what_the_declaration_says():
    names: dict = {}
    exec(parameters_cell(), {}, names)
    names.pop("__annotations__", None)
    assert validate(names) == Params()


def test_the_cell_is_formatted_as_ruff_would(tmp_path, repo):
    path = tmp_path / "cell.py"
    path.write_text(parameters_cell() + "\n")
    ruff = [sys.executable, "-m", "ruff", "--config", str(repo / "pyproject.toml")]
    ruff = [*ruff[:3], "format", "--check", "--diff", *ruff[3:], str(path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(len, parameters_cell().splitlines())) <= 120


def test_the_chains_notebooks_hold_this_very_cell(repo):
    folder = repo / "notebooks"
    assert sorted(p.stem for p in [*folder.glob("0*.ipynb"), *folder.glob("explorer.ipynb")]) == CHAIN
    assert stale_cells(folder) == []


@pytest.mark.parametrize("preset", preset_names())
def test_papermill_knows_every_parameter_of_a_preset(preset, repo, tmp_path, caplog):
    for name in CHAIN:
        with caplog.at_level(logging.WARNING, "papermill"):
            source = str(repo / "notebooks" / f"{name}.ipynb")
            papermill.execute_notebook(source, str(tmp_path / "out.ipynb"), load_preset(preset), prepare_only=True)
    assert not [r for r in caplog.records if "unknown parameter" in r.getMessage()]


def test_papermill_would_warn_of_a_name_that_the_cell_lacks(tmp_path, caplog):
    path = write(tmp_path / "00_one.ipynb", (parameters_cell(), ["parameters"]))
    with caplog.at_level(logging.WARNING, "papermill"):
        papermill.execute_notebook(str(path), str(tmp_path / "out.ipynb"), {"contxts": [1]}, prepare_only=True)
    assert any("unknown parameter: contxts" in r.getMessage() for r in caplog.records)


def test_writing_changes_that_cell_only_and_only_where_it_differs(tmp_path):
    stale = write(tmp_path / "00_one.ipynb", ("before = 1", []), ("old: int = 1", ["parameters"]), ("after = 2", []))
    fresh = write(tmp_path / "explorer.ipynb", (parameters_cell(), ["parameters"]))
    other = write(tmp_path / "server_launch.ipynb", ("x = 1", []))
    untouched = fresh.read_bytes(), other.read_bytes()
    before = json.loads(stale.read_text())

    assert stale_cells(tmp_path) == write_cells(tmp_path) == [stale]
    assert stale_cells(tmp_path) == write_cells(tmp_path) == []
    assert (fresh.read_bytes(), other.read_bytes()) == untouched
    after = json.loads(stale.read_text())
    assert "".join(after["cells"][1].pop("source")) == parameters_cell()
    before["cells"][1].pop("source")
    assert after == before
    nbformat.validate(nbformat.read(stale, as_version=4))


def test_a_notebook_without_the_tag_is_refused_by_name(tmp_path):
    write(tmp_path / "03_none.ipynb", ("x = 1", []))
    with pytest.raises(ValueError, match=r"^03_none.ipynb: 0 cells are tagged parameters; allowed: one$"):
        write_cells(tmp_path)


def test_names_that_nobody_declared_are_found_in_a_kernel_and_others_cells_are_left_alone(tmp_path):
    mine = ("rows = [1]\nimport os", [])
    path = write(tmp_path / "00_one.ipynb", mine, (parameters_cell(), ["parameters"]), (CHECK, []))
    out = papermill.execute_notebook(
        str(path), str(tmp_path / "out.ipynb"), {"contxts": [1], "batches": [2]}, progress_bar=False
    )
    assert out.cells[-1].outputs[0].text == "unknown ['contxts']\n"


def test_an_unknown_name_typed_into_the_cell_itself_is_found():
    cell = f"{parameters_cell()}\nbatch_sizes = [1]\nwarm: bool = True"
    assert unknown_names({"In": ["", "mine = 3", cell]}) == ["batch_sizes", "warm"]


def test_without_a_history_every_plain_value_counts():
    assert unknown_names({"contxts": [1], "seed": 1, "_private": 2, "len": len, "json": json}) == ["contxts"]
