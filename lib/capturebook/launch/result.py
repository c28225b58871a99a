"""Whether a script that ended did its work: by what it left, never by its exit status alone."""

import re

from .host import Refused
from .stages import NotHeld


def judge(following, evidence: dict) -> None:
    """Check the `result` of the launch that `following` follows, once its exit status is there.

    Raises NotHeld: status `fail` for a wrong exit status, `not_run` when the status is right and the proof is missing.
    """
    what, state, log = following.what, following.state, following.log
    wanted = what["result"]
    # A command that its log says was not found is no program that never started: this one ran.
    ran = state.rc not in (126, 127)
    said = ["C14" if ran and line.klass == "C5" else line.klass for line in log.said if line.klass]
    if state.rc != wanted["exit"]:
        signal = f" (128 + signal {state.rc - 128})" if 128 < state.rc < 193 else ""
        where = f": {log.tail()}" if log.tail() else ""
        klass = said[-1] if said else "C5" if state.rc in (126, 127) else ""
        raise NotHeld(f"exit status {state.rc}{signal}, wanted {wanted['exit']}{where}", klass, status="fail")
    # It says it succeeded: what its log says of a cause comes before what the script's text makes likely.
    hidden = said[-1] if said else what["hides"]
    if wanted["log"]:
        if "result" not in log.found:
            nothing = "its output is empty" if not log.lines else f"its last lines are: {log.tail()}"
            raise NotHeld(
                f"exit status {state.rc}, but no line of its output matches {wanted['log']!r}; {nothing}", hidden
            )
        evidence["line"] = log.found["result"]
    if wanted["file"]:
        evidence["file"] = _file(following, hidden)


def _file(following, hidden: str) -> str:
    host, what = following.host, following.what
    wanted = what["result"]
    name = wanted["file"].removeprefix(f"{what['cwd']}/")
    now = host.file_print(wanted["file"])
    if not now:
        raise NotHeld(f"it left no file {name!r}", hidden)
    if "regular" not in now:
        raise NotHeld(f"{name!r} is no file but a {now.split(None, 6)[-1]}", "C11")
    # Size and sha256: a file that was only touched has another time.
    if now.split()[:2] == what["stale"].split()[:2]:
        untold = "remove it before the start, or write what differs ({nonce} does): the same again may be the old one"
        raise NotHeld(f"the file {name!r} was there before the start and holds the same", "C8", untold)
    try:
        text = host.content(wanted["file"]).decode("utf-8", "replace")
    except Refused as exc:
        raise NotHeld(f"the file {name!r} cannot be read: {exc}", "C11") from None
    if not text.strip():
        raise NotHeld(f"the file {name!r} is empty", "C11")
    # A pattern is kept as its matches are shown.
    texts = (text, following.redactor.text(text))
    if wanted["contains"] and not any(re.search(wanted["contains"], one, re.MULTILINE) for one in texts):
        raise NotHeld(
            f"no line of {name!r} matches {wanted['contains']!r}; it ends with {text.strip()[-120:]!r}", hidden
        )
    return name
