"""Presets: YAML files under params/, read as YAML 1.2 means them, and `--set name=value` on top."""

import json
import os
import re
from pathlib import Path
from typing import get_args

import yaml

from .. import paths
from .declared import ParameterError, Params, allowed, unknown


class _Plain(yaml.SafeLoader):
    """YAML with JSON's scalars only, and no key twice.

    PyYAML reads YAML 1.1: no is False, 0123 octal, 12:30 a number of seconds, 1e3 a text, and of a key given twice
    the last one wins silently.
    """

    yaml_implicit_resolvers: dict = {}

    def construct_mapping(self, node, deep=False):
        self.refuse_names(node)
        return super().construct_mapping(node, deep)

    def refuse_names(self, node) -> None:
        """Raises MarkedYAMLError for a name given twice, or that is a list or mapping."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a list or mapping is no name", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)


class _Unfit(yaml.MarkedYAMLError):
    """A value that is not of the kind its tag says, or of a kind that JSON has not (a date, bytes, a set)."""

    def __init__(self, node):
        text = f" {node.value[:60]}" if isinstance(node, yaml.ScalarNode) else ""
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        super().__init__(problem=f"given {tag}{text}", problem_mark=node.start_mark)


def _reading(pattern: re.Pattern, construct):
    """A constructor for scalars that match: `!!bool maybe` is refused, and so is a number of 5000 digits."""

    def read(loader, node):
        if not isinstance(node, yaml.ScalarNode) or not pattern.match(node.value) or len(node.value) > LONGEST:
            raise _Unfit(node)
        return construct(loader, node)

    return read


def _unfit(loader, node):
    raise _Unfit(node)


LONGEST = 400
"""Digits of a number: as many as its range as a float has, and some."""

_Plain.yaml_constructors = {
    f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"]
    for name in ("str", "seq", "map")
} | {None: _unfit}

for _tag, _pattern, _first in (
    ("null", r"^(null|~|)$", ["n", "~", ""]),
    ("bool", r"^(true|false)$", ["t", "f"]),
    ("int", r"^-?(0|[1-9][0-9]*)$", list("-0123456789")),
    ("float", r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$", list("-0123456789")),
):
    _name, _scalar = f"tag:yaml.org,2002:{_tag}", re.compile(_pattern)
    _Plain.add_implicit_resolver(_name, _scalar, _first)
    _Plain.add_constructor(_name, _reading(_scalar, yaml.SafeLoader.yaml_constructors[_name]))


LARGEST = 1 << 20
"""Characters of a file once each alias (*name) is the value that it stands for: nine lines of nine are 9^9 values."""


def _size(node, known: dict[int, int]) -> int:
    """Characters and values under a node, aliases filled in; too many of one that holds itself."""
    if id(node) not in known:
        known[id(node)] = LARGEST + 1
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        known[id(node)] = 1 + own + sum(_size(part, known) for part in parts)
    return known[id(node)]


def preset_names() -> list[str]:
    """The shipped presets, by name."""
    return sorted(path.stem for path in (paths.repository() / "params").glob("*.yaml"))


def load_preset(name: str | Path) -> dict:
    """Parameters of a shipped preset (`h200`) or of a YAML file (`paths.given` says where it is looked for).

    Not validated yet. Raises ParameterError, one line, when there is no such file or it is not a mapping of names.
    """
    text = str(name)
    is_file = text.endswith((".yaml", ".yml"))
    path = paths.given(text) if is_file else paths.resolve(Path("params") / f"{text}.yaml")
    if not os.path.isfile(path):  # a name that is too long is no file either
        choice = f"{', '.join(preset_names())}, or a YAML file"
        what = "a file, but no YAML mapping (.yaml, .yml)" if os.path.isfile(paths.given(text)) else "no file"
        raise ParameterError(f"preset: given {text!r}, which is {what}; allowed: {choice}")
    try:
        values = _values(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else 0
        raise ParameterError(f"preset: {paths.shown(path)} line {line}: {exc.problem}") from None
    except OSError as exc:
        raise ParameterError(f"preset: {paths.shown(path)} cannot be read: {exc.strerror}") from None
    except RecursionError:
        raise ParameterError(f"preset: {paths.shown(path)} is nested too deep") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise ParameterError(f"preset: {paths.shown(path)} is not UTF-8 text") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ParameterError(f"preset: {paths.shown(path)} is no mapping; allowed: lines of the form name: value")
    return values


def _values(text: str):
    """What a YAML text holds. A value that cannot be taken is named by the first-level name that it stands under."""
    loader = _Plain(text)
    root = loader.get_single_node()
    if not isinstance(root, yaml.MappingNode):
        return None
    loader.refuse_names(root)
    values, known, size = {}, {}, 0
    for key, node in root.value:
        size += _size(node, known)
        if size > LARGEST:
            problem = f"{key.value}: more than {LARGEST} characters so far, with aliases (*name) filled in"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        try:
            values[loader.construct_document(key)] = loader.construct_document(node)
        except _Unfit as exc:
            may = allowed(key.value) if key.value in Params.model_fields else "what JSON holds"
            exc.problem = f"{key.value}: {exc.problem}; allowed: {may}"
            raise
    return values


def apply_sets(values: dict, sets: list[str]) -> dict:
    """A copy of `values` with `name=value` texts applied in order: plain text for a text parameter, JSON otherwise.

    Raises ParameterError, one line, for an unknown name and for a value that cannot be read.
    """
    values, seen = dict(values), set()
    for item in sets:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ParameterError(f"--set: given {item!r}; allowed: name=value")
        if name not in Params.model_fields:
            raise ParameterError(unknown(name))
        if name in seen:
            raise ParameterError(f"--set: {name} is given twice; allowed: once")
        seen.add(name)
        if _is_text(Params.model_fields[name].annotation):
            values[name] = text
            continue
        try:
            values[name] = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            given = text if len(text) <= 80 else f"{text[:77]}..."
            raise ParameterError(f"parameter {name}: given {given}; allowed: {allowed(name)}, as JSON") from None
    return values


def _is_text(annotation) -> bool:
    """Whether a parameter is any text, or one of some texts."""
    return annotation is str or all(isinstance(choice, str) for choice in get_args(annotation) or [None])


def _refuse(constant: str):
    """json.loads takes NaN and Infinity, which are not JSON and cannot be recorded."""
    raise ValueError(constant)
