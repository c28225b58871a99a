"""The notebooks as they are committed: shape, parameters, short cells, no outputs, no torch."""

import ast
import json
import re

import pytest

from capturebook import params
from capturebook.paths import repository

REPO = repository()

FOLDER = REPO / "notebooks"
NUMBERED = [
    "00_hypothesis",
    "01_kernel_build",
    "02_graph_capture",
    "03_compile_check",
    "04_throughput_sweep",
    "05_verdict",
]
CELL_KEYS = {"cell_type", "id", "metadata", "source"}


def load(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def sources(notebook: dict, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_chain_is_complete():
    assert [path.stem for path in sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))] == NUMBERED


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.ipynb"))])
def test_sources_hold_no_outputs_and_only_known_metadata(name):
    notebook = load(name)
    assert {"kernelspec", "language_info"} <= set(notebook["metadata"]) <= {"kernelspec", "language_info", "title"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        code = cell["cell_type"] == "code"
        assert set(cell) == CELL_KEYS | ({"outputs", "execution_count"} if code else set())
        assert not code or (cell["outputs"], cell["execution_count"]) == ([], None)
        assert set(cell["metadata"]) <= {"tags"}
        assert set(cell["metadata"].get("tags", [])) <= {"parameters", "interactive"}


@pytest.mark.parametrize("name", NUMBERED)
def test_each_argues_from_a_question_to_a_conclusion(name):
    notebook = load(name)
    cells = notebook["cells"]
    first, code = "".join(cells[0]["source"]), sources(notebook, "code")
    assert cells[0]["cell_type"] == "markdown" and re.match(r"# \d\d ", first) and "**Question.**" in first
    headings = re.findall(r"^#+ ", "\n".join(sources(notebook, "markdown")), re.M)
    assert headings.count("# ") == 1 and set(headings) <= {"# ", "## "}
    assert sum("**Claim.**" in text for text in sources(notebook, "markdown")) >= 1
    assert f'session = start("{name}", globals())' in code[1], "the cell after the parameters validates them"
    assert code[-1].splitlines()[-1].startswith("session.conclude(")
    assert "".join(cells[-1]["source"]) == code[-1]


@pytest.mark.parametrize("name", NUMBERED)
def test_cells_are_short_and_import_no_torch(name):
    notebook = load(name)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "parameters" in cell["metadata"].get("tags", []):
            continue
        assert len(source.splitlines()) <= 12, source
        for node in ast.walk(ast.parse(source)):
            imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(module.split(".")[0] == "capturebook" for module in imported), imported
            assert not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Try)), "logic belongs in lib/"


def test_all_hold_the_same_parameters_cell():
    assert params.stale_cells(FOLDER) == []
    for name in NUMBERED:
        tagged = [cell for cell in load(name)["cells"] if "parameters" in cell["metadata"].get("tags", [])]
        assert len(tagged) == 1 and "".join(tagged[0]["source"]) == params.parameters_cell()


def test_names_that_notebooks_bind_shadow_no_parameter():
    """A cell that assigns or imports a parameter's name before validation would be taken for its value."""
    for name in NUMBERED:
        for source in sources(load(name), "code")[1:]:
            tree = ast.parse(source)
            bound = {
                node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            bound |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                      for alias in node.names}  # fmt: skip
            assert not bound & set(params.Params.model_fields), (name, bound)
