"""Start a launch: the stages from connect to log, each proven before the next."""

import os
import random
import time
from collections.abc import Callable

from .. import paths
from ..chain.runfiles import stamp
from ..records import Record
from . import syntax
from .channel import ChannelError, text_of
from .follow import Following
from .host import Host, Refused
from .outcome import Outcome, record_of
from .reach import connect
from .readiness import owner_of
from .redact import Redactor
from .resolve import resolve
from .spec import LaunchFile, LaunchFileError
from .stages import NotHeld, Stages
from .starttext import start_text
from .store import FOLDER, Entry

SHOWN_NAMES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "HF_HOME")
SHOWN_BEGINNINGS = ("CUDA", "NVIDIA", "NCCL", "TORCH", "PYTORCH", "TRITON", "SGLANG", "VLLM", "TRANSFORMERS", "HF_HUB")
PORTS = range(20000, 30000)
"""For port: auto. Below the range that Linux gives to outgoing connections."""


def launch(
    spec: LaunchFile,
    host: str | None = None,
    on_event: Callable[[str], None] = print,
    show: Callable[[str], None] | None = None,
    after: Callable[[Following, Outcome], Outcome] | None = None,
    **facts,
) -> Record:
    """Start what a launch file says, on `host` (as ssh takes it; None: here), and follow it until it is ready (a
    server) or has ended (a script). The program survives this process; `attach` and `stop` find it by its id.

    `show` gets the program's lines, redacted; `after` is called while the host is still connected, once the launch
    passed; `facts` are kept in launch.json (`known`: more names to replace in the launch file). Returns the record,
    appended to outputs/launches/ID/records.jsonl. Raises LaunchFileError for bad input, before anything is started.
    """
    if host is not None and (not host or host.startswith("-") or any(c.isspace() or ord(c) < 32 for c in host)):
        raise LaunchFileError(f"host: given {host!r}; allowed: what ssh takes as a destination")
    deliveries = spec.contents()
    modes = {name: 0o700 if os.access(path, os.X_OK) else 0o600 for name, path in spec.deliveries().items()}
    syntax.interpreter_of(spec, deliveries)
    secrets = spec.secrets()
    redactor = Redactor(spec.secret)
    redactor.add({**spec.env, **secrets})
    redactor.add_words([*(spec.interpreter or []), *(spec.command or spec.args)])
    for text in (spec.ready.url, spec.ready.body) if spec.ready else ():
        redactor.add_text(text or "")
    kept = redactor.clean({**spec.model_dump(), "env": redactor.env(spec.env)})
    try:
        entry = Entry.create(spec.name, host, kept, facts)
    except OSError as exc:
        raise LaunchFileError(f"outputs: {paths.shown(exc.filename or FOLDER)}: {exc.strerror}") from None
    redactor.nonce = entry.info["nonce"]
    starting = Starting(spec, entry, host, deliveries, modes, secrets, redactor, on_event)
    return starting.run(show, after)


class Starting:
    """One launch on its way from connect to log; then Following has it."""

    def __init__(self, spec, entry: Entry, host: str | None, deliveries, modes, secrets, redactor, on_event):
        self.spec, self.entry, self.where = spec, entry, host
        self.deliveries, self.modes, self.secrets = deliveries, modes, secrets
        self.redactor = redactor
        self.host: Host | None = None
        self.interpreter = syntax.interpreter_of(spec, deliveries)
        self.stages = Stages(lambda text: on_event(redactor.text(text)))
        self.caveats: list[str] = []
        self.started = stamp()
        self.lost_at_start = False

    def run(self, show, after) -> Record:
        self.stages.say(f"launch {self.entry.id}")
        following = None
        try:
            with self.stages.stage("connect") as evidence:
                self.host, self.facts = connect(self.where, self.redactor)
                self._connect(evidence)
            for name in ("folder", "deliver", "syntax", "environment", "port", "start"):
                with self.stages.stage(name, lost="C6" if name in ("folder", "deliver") else "C5") as evidence:
                    getattr(self, f"_{name}")(evidence)
            following = Following(self.entry, self.host, self.stages, self.redactor, self.caveats)
            following.lost_at_start = self.lost_at_start
            following.asks = self.resolved.ready
            outcome = following.run(show)
            outcome = after(following, outcome) if after else outcome
        except NotHeld as exc:
            outcome = following.failed(exc) if following else Outcome.of(exc)
            if following is None:
                self.entry.update(state="not started")
        finally:
            if following:
                following.close()
            elif self.host:
                self.host.channel.close()
        return record_of(self.entry, self.stages, outcome, self.caveats, self.started, self.redactor)

    def _connect(self, evidence: dict) -> None:
        facts = self.facts
        if not facts.system.startswith("Linux"):
            raise NotHeld(f"the host is {facts.system}", "C5", "use a Linux host: stages are proven from its /proc")
        if facts.missing:
            raise NotHeld(f"the host lacks {', '.join(facts.missing)}", "C5", "install coreutils and util-linux there")
        if "default-signal" in facts.lacks:
            self.caveats.append("SIGINT and SIGQUIT start ignored: env on this host has no --default-signal")
        if self.spec.systemd:
            try:
                evidence["systemd"] = self.host.unit_state("")
            except Refused as exc:
                without = "leave `systemd` out: a launch survives its connection without it"
                raise NotHeld(f"systemd: asked for, and none answers on this host: {exc}", "C5", without) from None
        self.redactor.at(facts.home)
        evidence.update(system=facts.system, over="ssh" if self.where else "none: this machine")
        evidence["clock_ahead"] = clock = round(facts.clock - time.time(), 1)
        if abs(clock) > 2:
            self.caveats.append(f"the host's clock is {clock:+.0f} s from ours; no stage depends on it")

    def _folder(self, evidence: dict) -> None:
        base, folder = self._place()
        try:
            read_back = self.host.make_folder(base, folder, self._nonce)
        except Refused as exc:
            raise NotHeld(f"the launch's folder cannot be made: {exc}", "C6") from None
        if read_back != self._nonce:
            raise NotHeld(f"the folder's nonce reads back as {read_back!r}", "C6")
        self.folder = folder
        self.entry.update(folder=folder, boot=self.facts.boot, home=self.facts.home)
        evidence["folder"] = folder

    def _deliver(self, evidence: dict) -> None:
        sent = {**{f"work/{name}": data for name, data in self.deliveries.items()}}
        sent["keeper.sh"] = text_of("functions", "keeper")
        hashes = {}
        for name, data in sent.items():
            mode = self.modes.get(name.removeprefix("work/"), 0o600)
            try:
                hashes[name] = self.host.deliver(f"{self.folder}/{name}", data, mode)
            except Refused as exc:
                raise NotHeld(f"{name} cannot be written: {exc}", "C6") from None
            syntax.same_bytes(name, data, hashes[name])
        evidence.update(files=len(sent), bytes=sum(map(len, sent.values())), sha256=hashes)

    def _syntax(self, evidence: dict) -> None:
        port, hides = self._candidate_port(), syntax.hiding_class(self.spec, self.deliveries)
        known = self.entry.info.get("known", {})
        self.resolved = resolve(self.spec, self.folder, self._nonce, port, self.interpreter, hides, known)
        syntax.check(self.resolved, f"{self.folder}/work", self.deliveries, self.host, self._start_text(), evidence)

    def _environment(self, evidence: dict) -> None:
        asked = {**self.resolved.env, **self.secrets}
        try:
            got = self.host.environment(self._start_text(), self._nonce, self.resolved.command[0])
        except Refused as exc:
            told = {"command not found": "C5", "no environment": "C11"}
            klass = next((name for words, name in told.items() if words in str(exc)), "C6")
            raise NotHeld(str(exc), klass) from None
        wrong = [name for name, value in asked.items() if got.get(name) != value]
        if wrong:
            raise NotHeld(f"{wrong[0]} reads back with another value than was given", "C18")
        # What the program gets without our asking is as secret.
        self.redactor.add(got)
        shown = {n: v for n, v in got.items() if n in asked or n in SHOWN_NAMES or n.startswith(SHOWN_BEGINNINGS)}
        evidence["variables"] = dict(sorted(self.redactor.env(shown).items()))
        evidence.update(cwd=self.resolved.cwd, asked=len(asked))
        result = self.resolved.result
        if result and result.get("file"):
            self.resolved.stale = self.host.file_print(result["file"])
            if self.resolved.stale:
                self.caveats.append("the result file was there before; it counts only when it differs then")

    def _port(self, evidence: dict) -> None:
        port = self.resolved.port
        if port is None:
            evidence["port"] = "none asked for"
            return
        evidence["port"] = port
        held = [socket for socket in self.host.listening() if socket.port == port]
        if held:
            pid, who = owner_of(self.host, held[0], self.redactor)
            raise NotHeld(f"port {port} is held by {who}", "C9", port=port, owner=pid)

    def _start(self, evidence: dict) -> None:
        unit = self.resolved.unit = f"capturebook-{self.entry.id}.scope" if self.spec.systemd else ""
        # Stored first: whatever happens to us from here on, `attach` finds the folder.
        self.entry.update(resolved=self.resolved.as_dict(self.redactor), state="starting")
        reset = "" if "default-signal" in self.facts.lacks else "env --default-signal=INT,QUIT"
        blocks = self.spec.log_limit * 2048
        try:
            self.host.start(self.folder, self._nonce, self._start_text(), blocks, reset, unit)
        except Refused as exc:
            raise NotHeld(f"no program process within 3 s: {exc}", "C5") from None
        except ChannelError as exc:
            # It may have been started all the same: the next stage looks.
            self.lost_at_start = True
            evidence["connection"] = f"lost: {exc}"
            return
        self.entry.update(state="started")
        evidence["program"] = "recorded by its keeper"

    def _place(self) -> tuple[str, str]:
        """Where folders are made, and this launch's."""
        given = self.spec.folder
        if given is None and not self.where:
            return str(self.entry.path), str(self.entry.path / "host")
        base = given or "~/.capturebook/launches"
        if base.startswith("~/"):
            base = f"{self.facts.home}/{base[2:]}"
        elif not base.startswith("/"):
            base = f"{self.facts.home}/{base}" if self.where else str(paths.resolve(base))
        return base, f"{base}/{self.entry.id}"

    @property
    def _nonce(self) -> str:
        return self.entry.info["nonce"]

    def _start_text(self) -> bytes:
        what = self.resolved
        # What the host's own environment holds under a telling name is known, and hidden, from `environment` on.
        hidden = [value for value in self.redactor.values if "\n" not in value]
        return start_text(what.command, what.cwd, {**what.env, **self.secrets}, hidden, self._nonce)

    def _candidate_port(self) -> int | None:
        if self.spec.port != "auto":
            return self.spec.port
        taken = {socket.port for socket in self.host.listening()}
        return random.choice([port for port in PORTS if port not in taken])
