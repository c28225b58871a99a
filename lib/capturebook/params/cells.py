"""The parameters cell, the same in every notebook of the chain, and the check for names that nobody declared."""

import ast
import json
from pathlib import Path

from .declared import Params, describe

HEADER = "# Parameters, the same in every notebook: declared in lib/capturebook/params, see `capturebook params`."
INJECTED = "# Parameters"
"""First line of the cell that papermill puts after ours, with the values it was given."""


def parameters_cell() -> str:
    """The cell's source: one literal a line, with type and help as `papermill --help-notebook` reads them."""
    lines = [HEADER]
    for row in describe():
        value = row["default"]
        literal = json.dumps(value) if isinstance(value, (str, list, dict)) else repr(value)
        help = f"{row['help']} ({row['unit']})" if row["unit"] else row["help"]
        lines.append(f"{row['name']}: {row['type']} = {literal}  # {help}")
    return "\n".join(lines)


def notebooks(folder: Path) -> list[Path]:
    """The notebooks that hold the cell: the numbered ones and the explorer."""
    return sorted([*folder.glob("[0-9][0-9]_*.ipynb"), *folder.glob("explorer.ipynb")])


def stale_cells(folder: Path) -> list[Path]:
    """Notebooks whose parameters cell is not `parameters_cell()`."""
    return [path for path in notebooks(folder) if "".join(_cell(path)[1]["source"]) != parameters_cell()]


def write_cells(folder: Path) -> list[Path]:
    """Write the parameters cell into every notebook of `folder`; returns those that changed.

    Raises ValueError, one line, for a notebook without exactly one cell tagged `parameters`.
    """
    changed = stale_cells(folder)
    for path in changed:
        notebook, cell = _cell(path)
        cell["source"] = parameters_cell().splitlines(keepends=True)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return changed


def _cell(path: Path) -> tuple[dict, dict]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    tagged = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise ValueError(f"{path.name}: {len(tagged)} cells are tagged parameters; allowed: one")
    return notebook, tagged[0]


def unknown_names(names: dict) -> list[str]:
    """Names that a notebook's parameters cells assign and nobody declared. `names` is the notebook's globals().

    Only our cell and papermill's are looked at, in the kernel's history: other cells may name things as they like, and
    may have run before. Without a history (plain Python) every plain value counts.
    """
    if "In" not in names:
        plain = (str, int, float, bool, list, dict)
        found = [name for name, value in names.items() if isinstance(value, plain) and not name.startswith("_")]
    else:
        cells = [source for source in names["In"] if source.split("\n", 1)[0].strip() in (HEADER, INJECTED)]
        found = [name for source in cells for name in _assigned(source)]
    return [name for name in dict.fromkeys(found) if name not in Params.model_fields]


def _assigned(source: str) -> list[str]:
    found = []
    for node in ast.parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found
