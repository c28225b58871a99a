"""A launch file made concrete for one host folder: names replaced, defaults taken."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath

from .adapters import ADAPTERS
from .redact import SHOWN, Redactor
from .spec import LaunchFile


@dataclass
class Resolved:
    """What is started and what is waited for, with paths as they are on the host. `ready` and `result` are plain
    dicts of the launch file's models; `stale` is what the result file was before the start ("": not there), `unit` the
    systemd scope that it runs in, "" for none."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    port: int | None
    ready: dict | None
    result: dict | None
    failed: list[str]
    phases: dict[str, str]
    deadline: float
    adapter: str | None = None
    model: str | None = None
    interpreter: list[str] = field(default_factory=list)
    script: str = ""
    hides: str = "C7"
    stale: str = ""
    unit: str = ""

    def as_dict(self, redactor: Redactor) -> dict:
        """For launch.json: enough to attach, and no secret. What is ours stays even if a secret is a word of it: where
        folders are, loopback and port, names of ours; and a pattern finds in the log what is shown for the secret."""

        def pattern(text: str) -> str:
            return redactor.text(text).replace(SHOWN, re.escape(SHOWN))

        def after(ours: str, text: str) -> str:
            found = re.match(ours, text)
            return text[: found.end()] + redactor.text(text[found.end() :]) if found else redactor.text(text)

        kept = redactor.clean({**asdict(self), "env": redactor.env(self.env)})
        kept |= {"adapter": self.adapter, "unit": self.unit, "hides": self.hides}
        kept["failed"] = [pattern(text) for text in self.failed]
        kept["phases"] = {name: pattern(text) for name, text in self.phases.items()}
        for part, given in (("ready", self.ready), ("result", self.result)):
            for name in ("log", "expect", "contains"):
                if given and given.get(name) is not None:
                    kept[part][name] = pattern(given[name])
        if self.ready and self.ready["url"] is not None:
            kept["ready"]["url"] = after(r"https?://[^/?]*", self.ready["url"])
        if self.result and self.result["file"] is not None:
            kept["result"]["file"] = after(re.escape(self.env["CAPTUREBOOK_FOLDER"]), self.result["file"])
        return kept


def resolve(
    spec: LaunchFile,
    folder: str,
    nonce: str,
    port: int | None,
    interpreter: list[str],
    hides: str,
    known: dict[str, str],
) -> Resolved:
    """`folder` is the launch's folder on the host, `interpreter` what runs the script, `hides` the class of a script
    that says it succeeded and did not (C7, or C14 for one that relies on set -e), `known` more names to replace."""
    work = f"{folder}/work"
    names = {"folder": work, "nonce": nonce, **known} | ({} if port is None else {"port": str(port)})

    def put(text: str, written: Callable[[str], str] = str) -> str:
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", written(value))
        return text

    cwd = put(spec.cwd) if spec.cwd is not None else work
    if not cwd.startswith("/"):
        cwd = f"{work}/{cwd}"
    script = f"{work}/{PurePosixPath(spec.script).name}" if spec.script is not None else ""
    command = [*interpreter, script, *map(put, spec.args)] if script else [put(word) for word in spec.command]
    failed, phases = list(spec.failed), dict(spec.phases)
    if spec.adapter is not None:
        adapter = ADAPTERS[spec.adapter]
        command = adapter.command(command, nonce)
        failed += adapter.failed
        phases = {**adapter.phases, **phases}
    env = {name: put(value) for name, value in spec.env.items()}
    env |= {"CAPTUREBOOK_LAUNCH": nonce, "CAPTUREBOOK_FOLDER": work}
    if port is not None:
        env["CAPTUREBOOK_PORT"] = str(port)
    # Output that waits in a buffer is lost when the program is killed, and looks like a hang meanwhile.
    env.setdefault("PYTHONUNBUFFERED", "1")
    ready = spec.ready.model_dump() if spec.ready else None
    if ready:
        ready |= {key: put(ready[key]) for key in ("url", "body") if ready[key] is not None}
    result = spec.result.model_dump() if spec.result else None
    if result and result["file"]:
        file = put(result["file"])
        result["file"] = file if file.startswith("/") else f"{cwd}/{file}"
    for part in (ready, result):
        for key in ("log", "contains", "expect"):
            if part and part.get(key):
                part[key] = put(part[key], re.escape)
    return Resolved(
        command, cwd, env, port, ready, result, failed, phases, spec.deadline,
        spec.adapter, put(spec.model) if spec.model else None, list(interpreter), script, hides,
    )  # fmt: skip
