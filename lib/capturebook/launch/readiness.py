"""When a server is ready: its port is ours, real work succeeds, and it is still there afterwards."""

import shlex
import time
from contextlib import closing

from . import exposure
from .adapters import ADAPTERS, names_the_run
from .channel import ChannelError
from .forward import Forward
from .ready import Work, expecting
from .redact import SHOWN
from .stages import NotHeld

NOTHING = "nothing listens on its port yet"

SETTLE = 1.0
"""Seconds that a server must outlive its first answer."""


def until_ready(following, evidence: dict) -> None:
    """Wait until the launch that `following` follows is ready. Raises NotHeld when it ends, is not ready within its
    deadline, or another process owns its port."""
    asked, work = following.asks or {}, None
    adapter = ADAPTERS.get(following.what["adapter"])
    base = f"http://127.0.0.1:{following.what['port']}" if adapter else asked["url"]
    seen = NOTHING if base else "its log does not match yet"
    with closing(Forward(base, following.entry.info["host"])) as forward:
        while True:
            try:
                state = following.wait()
            except NotHeld as exc:
                if exc.status != "timeout" or not exc.klass:
                    raise
                if base and seen == NOTHING:
                    seen += exposure.elsewhere(following)
                late = f"not ready within {following.deadline:g} s: {seen}{following.phase()}"
                raise NotHeld(late, "C10", status="timeout") from None
            if state.ended or state.abandoned:
                said = following.said_class()
                raise NotHeld(following.gone("before it was ready"), said, status="fail")
            if base is None:
                if "ready" in following.log.found:
                    evidence["line"] = following.log.found["ready"]
                    break
                continue
            if not _owns_port(following, evidence):
                continue
            if following.from_now and any(SHOWN in (asked.get(part) or "") for part in ("url", "body")):
                following.caveats.append("its question holds a secret, which is not kept: it was not asked again")
                break
            try:
                forward.ensure()
            except ChannelError as exc:
                seen = f"it listens, and there is no forward to it: {exc}"
                continue
            work = work or Work(_work(following, lambda: forward.url))
            if work.step():
                evidence.update(answer=work.answer, asked=work.asked)
                line = f"request {work.asked}: {work.answer}"
                following.answered = [{"phase": "answered", "at": state.seconds, "line": line}]
                break
            seen = f"it listens, and its answer to request {work.asked} was {work.last}"
    if adapter:
        _named(following, adapter, evidence)
    _still_there(following, evidence)
    exposure.note(following)


def _work(following, url):
    asked, adapter = following.asks, ADAPTERS.get(following.what["adapter"])
    if adapter:
        key = following.key()
        return lambda: adapter.one_token(url(), following.what["model"], key)
    return expecting(url, asked["body"], asked["expect"], following.redactor.text)


def _named(following, adapter, evidence: dict) -> None:
    """Whether the answer can only be this launch's. `answer` is the model's name in it."""
    evidence["adapter"] = f"{adapter.name} ({adapter.proven})"
    folder = f"{following.entry.info['folder']}/work"
    evidence["answer_names_the_run"] = named = names_the_run(evidence["answer"], following.entry.info["nonce"], folder)
    if not named:
        following.caveats.append(
            f"its answers name {evidence['answer']!r}, not this launch; the port's owner was checked"
        )


def _owns_port(following, evidence: dict) -> bool:
    """Whether ours listens on the port. Raises NotHeld (C9) when another process does."""
    host, port = following.host, following.what["port"]
    sockets = [socket for socket in host.listening() if socket.port == port]
    if not sockets:
        return False
    owned = host.owners(host.tree(following.state.program[0], following.state.keeper[0]))
    for socket in sockets:
        if socket.inode not in owned:
            # It may have been closed since, and its owner's number with it.
            if not any(again.inode == socket.inode for again in host.listening()):
                return False
            pid = host.owners().get(socket.inode)
            nonce = following.entry.info["nonce"]
            if pid and host.process_environment(pid).get("CAPTUREBOOK_LAUNCH") == nonce:
                # It left its parent and its session, as a daemon does.
                owned[socket.inode] = pid
                continue
            who = owner_of(host, socket, following.redactor)[1]
            raise NotHeld(f"port {port} is owned by {who}, not by this launch", "C9")
    owner = owned[sockets[0].inode]
    program = following.state.program[0]
    evidence.update(port=port, owner=owner, owner_is="the program" if owner == program else "a descendant")
    return True


def owner_of(host, socket, redactor) -> tuple[int | None, str]:
    """The process that owns a socket, None when we may not know, and the same in words."""
    pid = host.owners().get(socket.inode)
    if pid is None:
        return None, "another user's process"
    line = host.command_line(pid)
    redactor.add_words(line)
    return pid, f"process {pid}: {redactor.text(shlex.join(redactor.clean(line)))[:200]}"


def _still_there(following, evidence: dict) -> None:
    until = time.monotonic() + SETTLE
    while time.monotonic() < until:
        state = following.wait()
        if state.ended or state.abandoned:
            said = following.said_class()
            raise NotHeld(f"it said it was ready, and ended: {following.how()}", said, status="fail")
    evidence["outlived_answer_s"] = SETTLE
