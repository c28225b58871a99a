"""Follow a started launch: identity, log, then ready (a server) or end (a script), each by evidence."""

import time
from collections import Counter
from collections.abc import Callable

from .. import paths
from . import ending, exposure, identity
from . import result as results
from .adapters import key_of
from .channel import ChannelError
from .host import LOG_PART, Host, Refused, State
from .lasting import Lasting
from .logmap import classes_of_error
from .logview import LogView
from .outcome import Outcome
from .readiness import until_ready
from .redact import Redactor
from .servers.pointing import point
from .servers.startlog import root_chain
from .stages import NotHeld, Stages
from .store import Entry

LOOK_AGAIN = 3.0
"""Seconds after the start in which the program's environment is looked at with each poll: a wrapper may change it."""

LOOK_WHERE = 1.0
"""Seconds after the start of a script at which it is first looked where it listens."""

MOST_HERE, MOST_OVER_SSH = 16 << 20, 4 << 20
"""Bytes of a log that are read at a time when it is far ahead of us."""


class Following:
    """A started launch as seen from here. `host` is connected; a lost connection is made again."""

    def __init__(
        self, entry: Entry, host: Host, stages: Stages, redactor: Redactor, caveats: list[str], attached: bool = False
    ):
        self.entry, self.stages, self.redactor, self.caveats = entry, stages, redactor, caveats
        attach = f"the program may still run: capturebook attach {entry.id}"
        self.host = Host(Lasting(host.channel, stages.say, attach))
        self.what = entry.info["resolved"]
        patterns = {f"failed {i}": pattern for i, pattern in enumerate(self.what["failed"])}
        patterns |= {f"phase {name}": pattern for name, pattern in self.what["phases"].items()}
        for part in ("ready", "result"):
            if self.what[part] and self.what[part]["log"]:
                patterns[part] = self.what[part]["log"]
        self.log = LogView(entry.log_path, redactor, patterns)
        self.pause = 0.3 if entry.info["host"] else 0.1
        self.state = State()
        self.deadline = self.what["deadline"]
        self.lost_at_start = False
        # As kept, without secrets; the launcher itself knows the question whole.
        self.asks = self.what["ready"]
        # A phase of its own: when the work it was asked for succeeded.
        self.answered: list[dict] = []
        self.ending = False
        self.astray_since: float | None = None
        # Of a server that was ready before: its deadline was for the start, and now it has as long again.
        self.from_now = False
        # Of what is in the log already when we attach, nobody knows when it was written.
        self._first = attached

    def run(self, show: Callable[[str], None] | None = None) -> Outcome:
        """To the end of what was asked; `show` gets the program's lines. Raises NotHeld at the first stage that does
        not hold."""
        self.log.show = show
        with self.stages.stage("identity") as evidence:
            identity.prove(self, evidence)
            self.deadline += self.state.seconds if self.from_now else 0.0
        with self.stages.stage("log") as evidence:
            self._log(evidence)
        if self.what["ready"] or self.what["adapter"]:
            with self.stages.stage("ready") as evidence:
                if self.from_now and (self.state.ended or self.state.abandoned):
                    raise NotHeld(self.gone("after it was ready"), self.said_class(), status="fail")
                until_ready(self, evidence)
            self.entry.update(state="ready", was_ready=True)
        else:
            with self.stages.stage("end") as evidence:
                self._end(evidence)
            self.entry.update(state="ended")
        return Outcome("pass", payload=self.payload())

    def failed(self, exc: NotHeld) -> Outcome:
        """End the program after a stage that did not hold, and say what its log says."""
        outcome = Outcome.of(exc)
        state = "ended"
        try:
            if self.ending:
                # It was this that did not hold: once is enough.
                state = "lost" if self.host.channel.gone else "unknown"
            elif not self.state.ended and not self.restarted:
                todo = exc.todo or f"see its log: {paths.shown(self.entry.log_path)}"
                ending.end_program(self, why=f"{exc.seen}; {exc.klass or 'to do'}: {todo}")
        except (ChannelError, Refused, NotHeld) as lost:
            state = "lost" if self.host.channel.gone else "unknown"
            self.caveats.append(f"whether it still runs is not known: {lost}")
        self.entry.update(state=state)
        outcome.payload = self.payload()
        coded = [said for said in self.log.said if said.code]
        if coded:
            outcome.error = (coded[-1].code, coded[-1].name, coded[-1].line)
            outcome.payload["classes_of_error"] = classes_of_error(coded[-1].code)
        if outcome.status != "not_run":
            # What a program that did not run its course printed of exceptions proves nothing of it.
            outcome.chain = root_chain(self.log.tracebacks())
        if pointing := point(outcome.chain):
            outcome.payload["points_to"] = pointing.as_dict()
            outcome.todo = outcome.todo or pointing.todo()
        return outcome

    def payload(self) -> dict:
        """What the record says of the program: its times (seconds since its start), last lines, exit status."""
        end = {key: self.state.exit[key] for key in ("rc", "left") if key in self.state.exit}
        return {
            "timeline": self._timeline(),
            "seconds": self.state.seconds,
            "exit": end,
            "log_bytes": self.state.log_size,
            "log_tail": self.log.last[-15:],
            "says": [{"line": said.line, "class": said.klass, "code": said.code} for said in self.log.said[-5:]],
        }

    def _timeline(self) -> list[dict]:
        """Its phases in their order; who followed it before knows when they began, and has recorded that."""
        own = [
            {"phase": name.removeprefix("phase "), "at": at, "line": self.log.found[name]}
            for name, at in self.log.at.items()
            if name.startswith("phase ") or name in ("ready", "result")
        ]
        before = [entry for record in self.entry.records() for entry in record.payload.get("timeline", [])]
        found = {}
        for entry in [{"phase": "start", "at": 0.0}, *before, *own, *self.answered]:
            if found.get(entry["phase"], {}).get("at") is None:
                found[entry["phase"]] = entry
        return sorted(found.values(), key=lambda entry: float("inf") if entry["at"] is None else entry["at"])

    def poll(self) -> State:
        """Read state and log once. Raises NotHeld when the launch is gone."""
        try:
            behind = (self.state.log_size or 0) - self.log.offset
            most = min(max(behind, LOG_PART), MOST_HERE if self.entry.info["host"] is None else MOST_OVER_SSH)
            state = self.state = self.host.poll(self.entry.info["folder"], self.log.offset, most)
        except Refused as exc:
            raise NotHeld(f"the launch's folder: {exc}", "C11", status="fail") from None
        if state.nonce != self.entry.info["nonce"]:
            raise NotHeld(f"the folder's nonce is {state.nonce!r}, not this launch's", "C8", status="fail")
        if self.restarted:
            raise NotHeld("the host was restarted since the start", status="fail", todo="launch it again")
        if ending.astray(self, state):
            raise NotHeld("the recorded process is gone, and not the one that its keeper waits for", "C5")
        self.log.feed(state.chunk, None if self._first else state.seconds)
        self._first = self._first and self.log.offset < (state.log_size or 0)
        if state.ended and self.log.offset >= (state.log_size or 0):
            self.log.finish(state.seconds)
        return state

    @property
    def restarted(self) -> bool:
        """Whether the host was restarted since the start: nothing of the launch runs, and its numbers are others'."""
        return self.state.boot not in ("", self.entry.info["boot"])

    @property
    def over(self) -> bool:
        """Whether the program was seen to run no more."""
        state = self.state
        return state.ended or self.restarted or bool(state.boot) and not state.alive

    def _log(self, evidence: dict) -> None:
        expected = f"capturebook launch {self.entry.info['nonce']}"
        if self.state.log_size is None or self.log.header != expected:
            raise NotHeld(f"the log does not begin with this launch's nonce but {self.log.header[:60]!r}", "C6")
        evidence.update(header="this launch's", bytes=self.state.log_size)
        if "program" in self.state.alive:
            to = self.host.link(f"/proc/{self.state.program[0]}/fd/1")
            ours = to == f"{self.entry.info['folder']}/pipe"
            # It may have ended since.
            evidence |= {"stdout": "the log" if ours else "elsewhere: the program moved it"} if to else {}

    def wait(self) -> State:
        """The next poll, after a pause unless there is more of the log to read. Raises NotHeld past the deadline, and
        when a `failed` pattern shows."""
        if self.log.offset >= (self.state.log_size or 0):
            time.sleep(self.pause)
        state = self.poll()
        self._check_failed()
        if state.seconds < LOOK_AGAIN:
            identity.check_environment(self, state)
        if not state.ended and state.seconds > self.deadline:
            late = f"no end within {self.deadline:g} s{self.phase()}: {self.log.tail(1)}"
            raise NotHeld(late, "C13", status="timeout")
        return state

    def _check_failed(self) -> None:
        for name, line in self.log.found.items():
            if name.startswith("failed "):
                raise NotHeld(f"its log says: {line}", self.said_class(), status="fail")

    def _end(self, evidence: dict) -> None:
        look = LOOK_WHERE
        while not self.state.ended:
            state = self.wait()
            if state.seconds > look and not state.ended:
                exposure.note(self)
                look = 3 * state.seconds
            if state.abandoned:
                raise NotHeld("its keeper was killed, so its exit status is lost", "C7", status="fail")
        while self.log.offset < (self.state.log_size or 0):
            self.poll()
        self._check_failed()
        evidence["exit"] = self.how()
        evidence.update(identity.unit_state(self))
        left = self.state.exit.get("left", "")
        if self.state.exit.get("swept") != "0":
            raise NotHeld(f"descendants outlive SIGKILL: {left}", "C4", ending.BY_HAND, "fail")
        if left:
            many = Counter(left.split())
            names = " ".join(name if count == 1 else f"{name} ({count})" for name, count in many.items())
            self.caveats.append(f"ended what outlived the program: {names} (C4)")
        results.judge(self, evidence)

    def close(self) -> None:
        """End the connection and give the log's copy back; the program goes on."""
        try:
            self.log.close()
        finally:
            self.host.channel.close()

    def key(self) -> str:
        """The running program's --api-key, from its own command line: it is kept nowhere."""
        pid = self.state.program[0]
        line = self.host.command_line(pid)
        self.redactor.add_words(line)
        return key_of(line, self.host.process_environment(pid))

    def must_run(self) -> None:
        """Raises NotHeld when the program has ended."""
        state = self.poll()
        if state.ended or state.abandoned:
            raise NotHeld(f"it has ended: {self.how()}", self.said_class())

    def how(self) -> str:
        """How the program ended, in words."""
        state = self.state
        if not state.ended:
            return "its keeper was killed, so its exit status is lost"
        signal = f" (128 + signal {state.rc - 128})" if 128 < state.rc < 193 else ""
        return f"exit status {state.rc}{signal} after {state.seconds:g} s{self.phase()}; {self.log.tail(2)}"

    def gone(self, when: str) -> str:
        """That the launch ended, `when`, in words; a program may outlive its keeper."""
        if not self.state.ended and "program" in self.state.alive:
            return f"its keeper was killed {when}, so its exit status is lost; the program did not end with it"
        return f"it {'was stopped' if self.entry.stopping else 'ended'} {when}: {self.how()}"

    def phase(self) -> str:
        """Which phase of its start the program was in, by its log."""
        if self.entry.info.get("was_ready"):
            return ""
        begun = [name for name in self.log.at if name.startswith("phase ")]
        return f", in phase {begun[-1].removeprefix('phase ')}" if begun else ""

    def said_class(self) -> str:
        """The class of what its log said last, "" for nothing that we know."""
        # C5, "not found", is said of a command of a script too: the program never started by its status alone.
        started = not self.state.ended or self.state.rc not in (126, 127)
        classed = [said.klass for said in self.log.said if said.klass and not (started and said.klass == "C5")]
        return classed[-1] if classed else ""
