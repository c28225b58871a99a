"""Whether a script can mean what it says, before it is started: its bytes, its line ends, its grammar."""

import hashlib
import re
import shlex
from pathlib import PurePosixPath

from .host import Host
from .resolve import Resolved
from .spec import LaunchFile, LaunchFileError
from .stages import NotHeld

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PYTHON_CHECK = "import ast, sys; ast.parse(open(sys.argv[1], 'rb').read(), sys.argv[1])"


def same_bytes(name: str, data: bytes, read_back: str) -> None:
    """Raises NotHeld (C2) when a file's sha256 on the host is not ours."""
    ours = hashlib.sha256(data).hexdigest()
    if ours != read_back:
        raise NotHeld(f"{name} reads back with sha256 {read_back[:12]}, sent was {ours[:12]}", "C2")


def interpreter_of(spec: LaunchFile, deliveries: dict[str, bytes]) -> list[str]:
    """What runs the script: as given, else its #! line, else by its suffix. Raises LaunchFileError for none."""
    if spec.script is None:
        return []
    if spec.interpreter is not None:
        return list(spec.interpreter)
    name = PurePosixPath(spec.script).name
    first = deliveries[name].split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        words = first[2:].decode("utf-8", "replace").strip().split(None, 1)
        if len(words) == 2 and words[1].startswith("-S"):
            return [words[0], *shlex.split(words[1][2:])]
        if words:
            return words
    suffix = PurePosixPath(name).suffix
    if suffix not in (".py", ".sh"):
        raise LaunchFileError(f"script: {name!r} has no #! line; allowed: one, or .py, .sh, or `interpreter`")
    return ["python3"] if suffix == ".py" else ["sh"]


def kind_of(command: list[str]) -> str:
    """ "sh", "bash" and so on, "python", or "" for what we cannot check."""
    for word in command[:2]:
        name = PurePosixPath(word).name
        if name in SHELLS:
            return name
        if re.fullmatch(r"python[0-9.]*", name):
            return "python"
    return ""


def hiding_class(spec: LaunchFile, deliveries: dict[str, bytes]) -> str:
    """C14 for a script that relies on set -e, else C7: what a false success of it is most likely to be."""
    data = deliveries[PurePosixPath(spec.script).name] if spec.script is not None else b""
    return "C14" if re.search(rb"^\s*set -[a-z]*e|^#!.*sh -[a-z]*e", data, re.MULTILINE) else "C7"


def check(what: Resolved, folder: str, deliveries: dict, host: Host, start: bytes, evidence: dict) -> None:
    """Check all delivered shell files' line ends, and the script's or the command's grammar on the host itself.

    Raises NotHeld: C3 for grammar and line ends, C1 and C15 for code that is not in a file.
    """
    interpreter, script = what.interpreter, what.script
    for name, data in deliveries.items():
        _refuse_carriage_returns(name, data)
        if (shell := _shell_of(name, data)) and script != f"{folder}/{name}":
            _parsed_by([shell], shell, f"{folder}/{name}", folder, host, start, optional=True)
    if not script:
        _check_command(what.command, folder, host, start, evidence)
        return
    kind = kind_of(interpreter)
    evidence["checked_by"] = f"{kind} -n" if kind in SHELLS else "python's parser" if kind else "nothing"
    if kind == "python":
        _must_be_silent([*interpreter, "-c", _PYTHON_CHECK, script], kind, folder, host, start)
    elif kind:
        _parsed_by(interpreter, kind, script, folder, host, start)


def _shell_of(name: str, data: bytes) -> str:
    """The shell that a delivered file is for, by its #! line, else by its suffix; "" for none."""
    first = data.split(b"\n", 1)[0]
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    named = [PurePosixPath(word).name for word in words if not word.startswith("-")]
    if words:
        return next((word for word in named[:2] if word in SHELLS), "")
    return "sh" if name.endswith(".sh") else ""


def _parsed_by(interpreter: list[str], kind: str, script: str, folder, host, start, optional=False) -> None:
    _must_be_silent([*interpreter, "-n", script], kind, folder, host, start, optional)
    if kind != "bash":
        # dash says nothing of a here-document without its end; bash does.
        _must_be_silent(["bash", "-n", script], "bash", folder, host, start, optional=True)


def _refuse_carriage_returns(name: str, data: bytes) -> None:
    first = data.split(b"\n", 1)[0]
    checked = data if _shell_of(name, data) or name.endswith(".sh") else first if first.startswith(b"#!") else b""
    if b"\r" in checked:
        line = checked[: checked.index(b"\r")].count(b"\n") + 1
        raise NotHeld(f"{name} has a CR line end in line {line}", "C3", "save it with LF line ends (dos2unix)")


def _check_command(command, folder, host, start, evidence) -> None:
    kind = kind_of(command)
    at = next((i for i, word in enumerate(command) if PurePosixPath(word).name.startswith(kind or "\0")), -1)
    rest = command[at + 1 :] if kind else []
    evidence["checked_by"] = "nothing: a command"
    if not kind:
        return
    if all(word.startswith("-") for word in rest):
        raise NotHeld(f"{shlex.join(command)} reads its code from standard input, which is empty here", "C1")
    if "-c" in rest:
        code = rest[rest.index("-c") + 1] if rest[-1] != "-c" else ""
        if kind == "python" and re.search(r"triton\.jit|@jit\b|import jit\b", code):
            raise NotHeld("a @triton.jit function is defined in -c code", "C15")
        if kind in SHELLS:
            evidence["checked_by"] = f"{kind} -n"
            _must_be_silent([*command[: at + 1], "-n", "-c", code], kind, folder, host, start)


def _must_be_silent(command, kind, folder, host, start, optional=False) -> None:
    status, said = host.check(command, folder, start)
    if status == 127:
        if optional:
            return
        raise NotHeld(f"no {kind} there: {said}", "C5", "install it there, or set `interpreter` or PATH in `env`")
    if status or said:
        lines = [line.strip() for line in said.splitlines() if line.strip()] or [f"exit status {status}"]
        shown = " / ".join(lines[:3] if kind != "python" else lines[-4:])
        raise NotHeld(f"{kind} says: {shown.replace(folder + '/', '')}", "C3")
