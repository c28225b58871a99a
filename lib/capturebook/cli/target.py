"""A target as it was typed, from where it was typed, to what a run can record and any of its processes can load."""

import ast
import importlib.machinery
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .. import paths
from ..records import OPTION, SUBJECT_FACTORS, arm_from, parse_factors
from ..subjects.loader import SubjectError, find
from .common import InputError


def locate(target: str, start: Path, options: Iterable[str] = (), question: str = "") -> str:
    """The target with its file relative to the repository or the home folder; modules stay as they are.

    Files are looked up in `start`, then in the repository; so are modules, before the usual places, and the folder that
    holds one goes into this process's PYTHONPATH. Nothing is imported. `options`: names that the build must take;
    so it must what the `question` sets of the subject's factors. Raises InputError, one line; ValueError for a question
    that has other than factors.
    """
    names = [*(("options", name, None) for name in options), *_asked(question)]
    root = paths.repository()
    try:
        found = find(target, [start, root])
    except SubjectError as exc:
        raise InputError(exc) from None
    where, _, name = found.rpartition(":")
    if where.endswith(".py"):
        _check(target, Path(where), name, names)
        return f"{_portable(Path(where), root)}:{name}"
    source = _module(target, where, [start, root])
    if source is not None:
        _check(target, source, name, names)
    return target


def _asked(question: str) -> list[tuple]:
    """The subject's own factors that a question gives a value."""
    arm = arm_from(parse_factors(question))
    options = [(f"question: {OPTION}{name}", name, None) for name in arm.options]
    return [("question", name, SUBJECT_FACTORS) for name in SUBJECT_FACTORS if getattr(arm, name) is not None] + options


def _portable(path: Path, root: Path) -> str:
    home = Path.home()
    if path.is_relative_to(root):
        return str(path.relative_to(root))
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _module(target: str, name: str, folders: list[Path]) -> Path | None:
    """The source of a module, found without importing its parents; None for one that has no .py."""
    places = [str(folder) for folder in folders] + sys.path
    spec = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        full = ".".join(parts[:depth])
        spec = importlib.machinery.PathFinder.find_spec(full, places)
        if spec is None:
            raise InputError(f"subject: {target!r}: no module {full!r} in {folders[0]}, the repository or the packages")
        if depth == 1:
            _make_importable(spec, folders)
        places = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _make_importable(spec, folders: list[Path]) -> None:
    """Child processes look where we looked."""
    file = spec.origin or next(iter(spec.submodule_search_locations))
    for folder in folders:
        inside = Path(file).is_relative_to(folder) and not any(Path(file).is_relative_to(p) for p in sys.path if p)
        if inside:
            before = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), before]))
            sys.path.insert(0, str(folder))
            return


def _check(target: str, source: Path, name: str, needed: list[tuple]) -> None:
    """That the file parses and binds `name` at its top level, and takes what is needed: (parameter, keyword, among).

    A file with a star import may bind anything, and a build that is decorated or no function may take anything. A
    package that imports its build from one of its files is followed there.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except OSError as exc:
        raise InputError(f"subject: {target!r}: {source} cannot be read: {exc.strerror}") from None
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None) or 0
        raise InputError(f"subject: {target!r}: line {line} does not parse: {exc.args[0]}") from None
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    if name not in bound and "*" not in bound:
        raise InputError(f"subject: {target!r}: the file defines no {name!r}")
    for node in tree.body if source.name == "__init__.py" else []:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            file = source.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            for alias in node.names:
                if (alias.asname or alias.name) == name and file.is_file():
                    _check(target, file, alias.name, needed)
    builds = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if len(builds) == 1 and not builds[0].decorator_list and not builds[0].args.kwarg:
        takes = [arg.arg for arg in (*builds[0].args.args, *builds[0].args.kwonlyargs)]
        for parameter, keyword, among in needed:
            if keyword not in takes:
                allowed = ", ".join(sorted(set(takes) & set(among or takes))) or "none"
                raise InputError(f"{parameter}: {target!r} takes no {keyword!r}; allowed: {allowed}")
