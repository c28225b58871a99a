"""The source of a subject: its own file, the local modules it imports and the files these name; none is imported."""

import ast
import importlib.machinery
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from .. import paths

CONTRACT = ("capturebook/__init__.py", "capturebook/subjects/__init__.py", "capturebook/subjects/step.py")
"""What `from capturebook.subjects import Step` takes. A single file gets a stand-in for it."""

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass
class Sources:
    """`module` holds build; `files` maps paths below one import root to files here; `foreign` names other packages."""

    module: str
    build: str
    files: dict[str, Path] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)

    @property
    def own(self) -> Path:
        """The file that holds build."""
        as_file = self.module.replace(".", "/")
        return self.files.get(f"{as_file}.py") or self.files[f"{as_file}/__init__.py"]

    def inline(self) -> str | None:
        """The subject's text where it may stand inside another script: one file that does not ask where it lies."""
        if set(self.files) - set(CONTRACT) != {f"{self.module}.py"}:
            return None
        text = self.own.read_text(encoding="utf-8")
        if "__file__" in text or "__main__" in text or "from __future__" in text:
            return None
        return text


def sources(target: str, preload: tuple[str, ...] = ()) -> Sources:
    """The closure of a target (pkg.mod:build or file.py:build) over local imports, and over those of `preload`.

    Local is what lies in the subject's folder or package; `capturebook`'s own modules are followed too. Raises
    FileNotFoundError, one line, when the subject's source is not there.
    """
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        path = paths.resolve(where)
        if not path.is_file():
            raise FileNotFoundError(f"subject: no file {where!r}")
        module, root = path.stem, path.parent
    else:
        module, root = where, _root_of(where)
    found = Sources(module, name)
    waiting = [(module, root), *((m, root) for m in preload)]
    while waiting:
        wanted, base = waiting.pop()
        if not where.endswith(".py") and wanted.partition(".")[0] not in (module.partition(".")[0], _PACKAGE.name):
            continue  # beside a package in site-packages lie all the others
        for relative, file in _files_of(wanted, base).items():
            if relative not in found.files:
                found.files[relative] = file
                found.files |= _data(file, relative)
                waiting += [(m, base) for m in _imports(file, relative)]
    tops = {relative.partition("/")[0].removesuffix(".py") for relative in found.files}
    for file in [f for f in found.files.values() if f.suffix == ".py"]:
        imported = {m.partition(".")[0] for m in _imports(file, "")} - {""}
        found.foreign |= imported - tops - {"torch", "triton", "capturebook"} - set(sys.stdlib_module_names)
    return found


def _root_of(module: str) -> Path:
    top = module.partition(".")[0]
    if top == _PACKAGE.name:
        return _PACKAGE.parent
    places = [p for p in (*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path) if p]
    spec = importlib.machinery.PathFinder.find_spec(top, places)
    if spec is None or not spec.origin:
        raise FileNotFoundError(f"subject: no source of {module!r}")
    path = Path(spec.origin)
    return path.parent.parent if path.name == "__init__.py" else path.parent


def _files_of(module: str, root: Path) -> dict[str, Path]:
    """The module's file and its packages' __init__, by path below the root; nothing for what is not local."""
    parts = module.split(".")
    base = _PACKAGE.parent if parts[0] == _PACKAGE.name else root
    files = {}
    for depth in range(1, len(parts) + 1):
        folder = base.joinpath(*parts[:depth])
        package, plain = folder / "__init__.py", folder.with_suffix(".py")
        file = package if package.is_file() else plain if plain.is_file() else None
        if file is not None:
            files[str(file.relative_to(base))] = file
        elif not folder.is_dir():
            break  # a name that the module before it defines, or another package
    return files


def _data(file: Path, relative: str) -> dict[str, Path]:
    """Files beside a module that a string in it names, a table of tunings, say; by path below the root."""
    found = {}
    for node in ast.walk(ast.parse(file.read_bytes())):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.fullmatch(r"[\w-]+(\.\w+)+", text) and not text.endswith(".py") and (file.parent / text).is_file():
            found[str(Path(relative).parent / text)] = file.parent / text
    return found


def _imports(file: Path, relative: str) -> list[str]:
    """Every module that a file's import statements may name, wherever they stand; relative ones made absolute."""
    package = list(Path(relative).parent.parts) if relative else []
    names = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            if node.level and not relative:
                continue
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return names
