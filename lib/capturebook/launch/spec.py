"""The launch file: what to start, where, and by what evidence it counts as ready, failed or done."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import paths
from ..params import load_preset
from .adapters import Name
from .channel import encoded


class LaunchFileError(ValueError):
    """A launch file that cannot be used. One line: the field, what was given, what is allowed."""


def _passable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a program")
    try:
        encoded(text)
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair cannot be passed to a program") from None
    return text


def _pattern(text: str) -> str:
    try:
        pattern = re.compile(text)
    except re.error as exc:
        raise ValueError(f"no regular expression: {exc}") from None
    if pattern.search(""):
        raise ValueError("matches nothing at all as well, so a match proves nothing")
    return text


def _inside(text: str) -> str:
    path = PurePosixPath(_passable(text))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("a relative path below the launch's folder, without '..'")
    return text


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("a variable's name: letters, digits and _")
    if name.startswith("CAPTUREBOOK_"):
        raise ValueError("names that start with CAPTUREBOOK_ are set by the launcher")
    if name.startswith("cb_"):
        raise ValueError("names that start with cb_ are the launcher's own in its shell")
    return name


def _folder(text: str) -> str:
    if not _passable(text) or text.startswith("~") and not text.startswith("~/"):
        raise ValueError("an absolute path, one below ~/, or a relative one")
    return text


ASKED = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\]):(\{port\}|[0-9]{1,5})(?:[/?]\S*)?")
"""What ready.url may be: the host's own loopback. Its port is compared with the launch's."""

Text = Annotated[str, AfterValidator(_passable)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Inside = Annotated[str, AfterValidator(_inside)]
Variable = Annotated[str, AfterValidator(_variable)]
Folder = Annotated[str, AfterValidator(_folder)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Result(_Strict):
    """What proves that a script did its work; its exit status alone proves nothing.

    `log`: a regular expression that its output must match. `file`: a file, relative to `cwd`, that this launch must
    have made or changed, with a match of `contains` in it. `exit`: the exit status that it must have as well.
    """

    log: Pattern | None = None
    file: Text | None = None
    contains: Pattern | None = None
    exit: int = 0

    @model_validator(mode="after")
    def _proof(self):
        if self.log is None and self.file is None:
            raise ValueError("result: needs log or file; an exit status alone proves nothing")
        if self.contains is not None and self.file is None:
            raise ValueError("result: contains needs file")
        return self


class Ready(_Strict):
    """What proves that a server works. `url` is asked (POST of `body` if there is one) until its answer matches
    `expect`; it must ask for real work, as a /health does not. It is http on the host's loopback, at the launch's own
    port: another server's answer proves nothing. `log`: a match in the output, for what has no port."""

    url: Text | None = None
    body: Text | None = None
    expect: Pattern | None = None
    log: Pattern | None = None

    @model_validator(mode="after")
    def _proof(self):
        if (self.url is None) == (self.log is None):
            raise ValueError("ready: needs one of url and log")
        if (self.url is None) != (self.expect is None):
            raise ValueError("ready: url and expect go together; any answer proves nothing")
        return self


class LaunchFile(_Strict):
    """One launch. In `command`, `args`, `env`, `cwd`, `ready` and `result`, {port}, {folder} (where delivered files
    lie) and {nonce} are replaced, in a pattern as plain text; CAPTUREBOOK_PORT, _FOLDER and _LAUNCH (the nonce) are in
    the environment.

    `script` is a local file, run by `interpreter`, else its #! line, else python3 for .py and sh for .sh. `files` are
    local files and folders to deliver, a list (same relative name there) or {name there: local name}; local names are
    relative to the launch file. `adapter` knows a server: ready then means that it generated a token, of `model` if
    that is given; it is asked with the --api-key of its own command line. `secret` names variables that are taken from
    the caller's environment and never shown. `port` is a number or "auto". `failed`: regular expressions; a match in
    the output ends the launch. `deadline` is in seconds, from the start until ready (a server) or ended (a script).
    `folder` is where launches' folders are made on the host. `log_limit` is in MB. `systemd`: start it as a transient
    scope of the host's systemd (root's is the system's), whose state is evidence; without one it is refused (seen with
    systemd 252, as root).
    """

    name: Text = ""
    command: list[Text] | None = None
    script: Text | None = None
    args: list[Text] = Field(default_factory=list)
    interpreter: list[Text] | None = None
    files: list[Inside] | dict[Inside, Text] = Field(default_factory=dict)
    cwd: Text | None = None
    folder: Folder | None = None
    env: dict[Variable, Text] = Field(default_factory=dict)
    secret: list[Variable] = Field(default_factory=list)
    port: Annotated[int, Field(ge=1, le=65535)] | Literal["auto"] | None = None
    ready: Ready | None = None
    failed: list[Pattern] = Field(default_factory=list)
    result: Result | None = None
    adapter: Name | None = None
    model: Text | None = None
    phases: dict[str, Pattern] = Field(default_factory=dict)
    deadline: Annotated[float, Field(gt=0, le=86400, strict=False)] = 600.0
    log_limit: Annotated[int, Field(ge=1, le=4096)] = 64
    systemd: bool = False
    source: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _consistent(self):
        if (self.command is None) == (self.script is None):
            raise ValueError("command: needs one of command and script")
        if self.command is not None and (not self.command or not self.command[0]):
            raise ValueError("command: is empty; allowed: a list, the program first")
        if self.command is not None and (self.args or self.interpreter):
            raise ValueError("args, interpreter: go with script; a command is one whole list")
        first = (self.command or self.interpreter or ["sh"])[0]
        if first.startswith("-"):
            raise ValueError(f"command, interpreter: given {first!r} first; allowed: a program's name or path")
        if self.interpreter is not None and (not self.interpreter or not self.interpreter[0]):
            raise ValueError("interpreter: is empty; allowed: a list, the program first")
        if sum(given is not None for given in (self.ready, self.result, self.adapter)) != 1:
            raise ValueError("ready, result, adapter: needs one of them: what proves that a server or a script works")
        if self.adapter is not None and self.port is None:
            raise ValueError("port: missing; with adapter the server is asked there")
        if self.model is not None and self.adapter is None:
            raise ValueError("model: goes with adapter")
        if self.ready is not None and self.ready.url is not None and self.port is None:
            raise ValueError("port: missing; with ready.url the owner of the port is checked")
        if self.ready is not None and self.ready.url is not None:
            asked = ASKED.fullmatch(self.ready.url)
            if asked is None or asked[1] != "{port}" and (self.port == "auto" or int(asked[1]) != self.port):
                allowed = "http://127.0.0.1:{port}/..., the launch's own port on the host's loopback"
                raise ValueError(f"ready.url: given {self.ready.url!r}; allowed: {allowed}")
        both = set(self.env) & set(self.secret)
        if both:
            raise ValueError(f"secret: {sorted(both)[0]} is in env too; its value comes from your environment")
        return self

    def deliveries(self) -> dict[str, Path]:
        """Name below the launch's folder -> local file, the script included. Raises LaunchFileError for one
        that is missing."""
        here = Path(self.source).parent if self.source else Path.cwd()
        listed = {name: name for name in self.files} if isinstance(self.files, list) else dict(self.files)
        if self.script is not None:
            name = Path(self.script).name
            if PurePosixPath(listed.setdefault(name, self.script)) != PurePosixPath(self.script):
                raise LaunchFileError(f"files: {name!r} is the script's name there; allowed: another name")
        found: dict[str, Path] = {}
        for name, local in listed.items():
            path = here / local
            if path.is_dir() and local != self.script:
                inside = sorted(item for item in path.rglob("*") if item.is_symlink() or not item.is_dir())
                if odd := [item for item in inside if not item.is_file()]:
                    shown = f"{local}/{odd[0].relative_to(path).as_posix()}"
                    raise LaunchFileError(f"files: {shown!r} is no file; allowed in a folder: files and folders")
                found |= {f"{name}/{item.relative_to(path).as_posix()}": item for item in inside}
            elif path.is_file():
                found[name] = path
            else:
                field = "script" if local == self.script else "files"
                raise LaunchFileError(f"{field}: {local!r} is no file in {str(here)!r}")
        return found

    def contents(self) -> dict[str, bytes]:
        """What `deliveries` names, read. Raises LaunchFileError for one that cannot be."""
        found = {}
        for name, path in self.deliveries().items():
            try:
                found[name] = path.read_bytes()
            except OSError as exc:
                raise LaunchFileError(f"files: {name!r} cannot be read: {exc.strerror}") from None
        return found

    def secrets(self) -> dict[str, str]:
        """Values of `secret` from this process's environment. Raises LaunchFileError for one that is not set."""
        missing = [name for name in self.secret if not os.environ.get(name)]
        if missing:
            raise LaunchFileError(f"secret: {missing[0]} is not set in your environment")
        return {name: os.environ[name] for name in self.secret}


def load(name: str | Path) -> LaunchFile:
    """A launch file, YAML without YAML 1.1's conversions; looked up from here, then from the repository.

    Raises LaunchFileError, one line, when it is missing, no YAML, or breaks the model.
    """
    path = Path(name).absolute() if Path(name).is_file() else paths.resolve(name)
    if path.suffix not in (".yaml", ".yml"):
        raise LaunchFileError(f"launch file: given {str(name)!r}; allowed: a .yaml or .yml file")
    try:
        values = load_preset(path)
    except ValueError as exc:
        raise LaunchFileError(f"launch file: {str(exc).removeprefix('preset: ')}") from None
    if "source" in values:
        raise LaunchFileError(_no_field("source"))
    return validated({"name": path.stem, **values, "source": str(path)})


def _no_field(name: str) -> str:
    return (
        f"{name}: no such field; allowed: {', '.join(known for known in LaunchFile.model_fields if known != 'source')}"
    )


def validated(values: dict) -> LaunchFile:
    """A LaunchFile from plain values; errors as LaunchFileError, one line."""
    try:
        return LaunchFile(**values)
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
    # Of a list or a mapping, the first error may be that it is not the other.
    inside = [error for error in errors if error["loc"][:1] == errors[0]["loc"][:1] and error["type"] == "value_error"]
    error = (inside if errors[0]["type"] == "list_type" and inside else errors)[0]
    if not error["loc"] or error["type"] == "value_error" and error["loc"][-1:] in (("result",), ("ready",)):
        raise LaunchFileError(str(error["ctx"]["error"]))
    where = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("constrained", "list[", "dict[")))
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        raise LaunchFileError(_no_field(where))
    given = repr(error["input"])
    shown = given if len(given) <= 80 else f"{given[:77]}..."
    raise LaunchFileError(f"{where}: given {shown}; {error['msg'].removeprefix('Value error, ').lower()}")
