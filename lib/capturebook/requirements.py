"""What pyproject.toml says this package needs: is it installed, and as wheels for a GPU host without network.

    python -m capturebook.requirements check [EXTRA ...]
    python -m capturebook.requirements wheelhouse 3.12 .wheelhouse

Runs before anything is known to be installed: it imports the standard library, and `packaging` once that is there.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from .paths import repository

HOST = ("torch", "triton", "numpy")
"""What a GPU host is taken to have: torch and triton matched to its driver, and the numpy that goes with them."""

LEFT_OUT = ("debugpy",)
"""Needed by ipykernel for a debugger only (it runs without), and the difference between 61 and 56 MB."""

PLATFORMS = ("any", *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 11, -1)), "manylinux2014_x86_64")
"""pip takes each tag literally: without the older ones it overlooks most wheels."""

LIMIT_MB = 60
"""The wheels are to travel with the checkout, over whatever way there is to the host."""


class RequirementError(ValueError):
    """A package is missing, or wheels cannot be gathered. One line says which."""


def declared(extras: tuple[str, ...] = ()) -> list[str]:
    """Requirement lines of pyproject.toml, `capturebook[...]` within an extra resolved."""
    project = tomllib.loads((repository() / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        if extra not in project["optional-dependencies"]:
            allowed = ", ".join(project["optional-dependencies"])
            raise RequirementError(f"extra: given {extra!r}, allowed: {allowed}")
        for line in project["optional-dependencies"][extra]:
            nested = re.fullmatch(r"capturebook\[(.*)\]", line)
            lines += declared(tuple(nested[1].split(",")))[len(project["dependencies"]) :] if nested else [line]
    return lines


def check(extras: tuple[str, ...] = ()) -> list[str]:
    """Notes on installed packages outside the declared range. Raises RequirementError, one line, for missing ones."""
    lines = [*declared(extras), "numpy", "packaging"]
    installed = {line: _installed(re.match(r"[\w.-]+", line)[0]) for line in lines if _applies(line)}
    missing = [re.match(r"[\w.-]+", line)[0] for line, version in installed.items() if version is None]
    if missing:
        s = "s are" if len(missing) > 1 else " is"
        raise RequirementError(f"package{s} missing from {sys.executable}: {', '.join(missing)}")
    from packaging.requirements import Requirement

    notes = []
    for need, version in ((Requirement(line), version) for line, version in installed.items()):
        if not need.specifier.contains(version, prereleases=True):
            notes.append(f"{need.name} {version} is installed; pyproject.toml asks for {need.specifier}")
    return notes


def _applies(line: str) -> bool:
    """Whether a requirement's marker holds here. The platform is the only one in use, so `packaging` is not needed."""
    marker = line.partition(";")[2].strip()
    return not marker or marker == f"sys_platform == '{sys.platform}'"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def wheelhouse(python: str, folder: Path) -> tuple[list[str], float]:
    """Gather the wheels of the headless chain and its tests for `python` (such as "3.12") on x86-64 Linux.

    Returns their file names and their size in MB (10^6 bytes). Nothing of HOST or LEFT_OUT is among them, so the host
    installs them with `pip install --no-index --no-deps --target DIR *.whl`. Needs a network here.
    Raises RequirementError when the version is malformed, pip fails, or the size exceeds LIMIT_MB.
    """
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise RequirementError(f"PY: given {python!r}, allowed: a Python version such as 3.12")
    from packaging.requirements import Requirement

    roots = [line for line in declared(("test",)) if Requirement(line).name not in HOST]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        wanted, tried = roots, set()
        while wanted:
            _download(python, scratch, wanted)
            tried |= set(wanted)
            kept, wanted = _closure(roots, scratch, python)
            if stuck := tried & set(wanted):
                raise RequirementError(f"wheelhouse: pip found no wheel of {', '.join(sorted(stuck))}")
        _swap_fonttools(kept, scratch, python)
        size = sum(path.stat().st_size for path in kept.values()) / 1e6
        if size > LIMIT_MB:
            raise RequirementError(f"wheelhouse: {size:.1f} MB of wheels, allowed: {LIMIT_MB} MB")
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.whl"):
            old.unlink()
        for path in kept.values():
            (folder / path.name).write_bytes(path.read_bytes())
    return sorted(path.name for path in kept.values()), size


def _download(python: str, folder: Path, lines: list[str], *options: str, platforms=PLATFORMS) -> None:
    tags = [part for tag in platforms for part in ("--platform", tag)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--only-binary=:all:"]
    command = [*pip, "--python-version", python, "--implementation", "cp", *tags, *options, "-d", str(folder), *lines]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RequirementError(f"wheelhouse: pip download failed: {last}")


def _closure(roots: list[str], folder: Path, python: str) -> tuple[dict[str, Path], list[str]]:
    """Wheels that `roots` need on the target, by name, and requirements that none satisfies.

    pip reads the markers of what it downloads (`python_version >= "3.12"`) for the interpreter it runs in, not for
    --python-version: it brings wheels that the target does not need and leaves out some that it does.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename

    wheels = {parse_wheel_filename(path.name)[0]: path for path in folder.glob("*.whl")}
    target = {"python_version": python, "python_full_version": f"{python}.0", "implementation_name": "cpython"}
    target |= {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    kept, missing, todo, seen = {}, [], [Requirement(line) for line in roots], set()
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        if name in (*HOST, *LEFT_OUT) or (name, frozenset(need.extras)) in seen:
            continue
        seen.add((name, frozenset(need.extras)))
        if name not in wheels:
            missing.append(f"{need.name}{need.specifier}")
            continue
        kept[name] = wheels[name]
        for line in _requires(wheels[name]):
            inner = Requirement(line)
            extras = need.extras or {""}
            if not inner.marker or any(inner.marker.evaluate({**target, "extra": extra}) for extra in extras):
                todo.append(inner)
    return kept, missing


def _requires(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])


def _swap_fonttools(kept: dict[str, Path], folder: Path, python: str) -> None:
    """Take fonttools (of matplotlib) as its pure-Python wheel, which is 4 MB smaller."""
    from packaging.utils import parse_wheel_filename

    version = parse_wheel_filename(kept["fonttools"].name)[1]
    pure = folder / "pure"
    _download(python, pure, [f"fonttools=={version}"], "--no-deps", platforms=("any",))
    kept["fonttools"] = next(pure.glob("*.whl"))


def main(argv: list[str] | None = None) -> int:
    """The command line above: 0, or 2 after one line on stderr."""
    import argparse

    parser = argparse.ArgumentParser(prog="capturebook.requirements", description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("check", help="is all installed that is needed?").add_argument("extras", nargs="*")
    gather = actions.add_parser("wheelhouse", help="wheels for a host without network")
    gather.add_argument("python", metavar="PY", help="the host's Python version, such as 3.12")
    gather.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    try:
        if args.action == "check":
            for note in check(tuple(args.extras)):
                print(f"note: {note}", file=sys.stderr)
        else:
            names, size = wheelhouse(args.python, args.folder)
            print(f"{len(names)} wheels for Python {args.python}, {size:.1f} MB, in {args.folder}")
    except RequirementError as exc:
        print(exc, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
