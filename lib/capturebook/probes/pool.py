"""The pool: runs probes, several at a time, each in a process of its own, and appends each record as it ends."""

import contextlib
import hashlib
import json
import selectors
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ..records import Record, printable
from . import caches, lease, outcome, servers
from .probe import Probe
from .scrub import LOG_BYTES, scrub_file

COLD = ("cold", "kernel_cold")
KEEPING = ("step", "gain", "sweep", "trace")
"""Kinds of probes that start from what others of their subject compiled, and leave what they compiled."""


def print_event(text: str) -> None:
    """Progress as plain lines on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


class _Running:
    """A probe that has been asked for: its connection, scratch folder and what its supervisor said."""

    def __init__(self, probe: Probe, connection, scratch: Path, log: str):
        self.probe, self.connection, self.scratch, self.log = probe, connection, scratch, log
        self.began, self.buffer, self.started, self.end = time.time(), b"", False, None

    def read(self) -> bool:
        """Take what has arrived; True when the probe has ended."""
        try:
            data = self.connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            lost = {"why": "lost"} if self.started else {"why": "not_started", "reason": "the probe server ended"}
            self.end = self.end or lost
            return True
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in map(json.loads, lines):
            if line["event"] == "started":
                self.started = True
            else:
                self.end = line
        return self.end is not None


class ProbePool:
    """Runs probes for one run folder. A context manager: leaving it ends every probe and every server it owns.

    parallel: how many correctness probes at a time; 0 chooses by cores (three quarters of them on a GPU host, at
    most 12; else all but one). on_event(text) gets one line for each probe that ends.
    """

    def __init__(self, run, parallel: int = 0, on_event=print_event):
        self.run_folder = run
        self.on_event = on_event
        self.gpu = lease.gpu_uuid()
        self.parallel = parallel or servers.at_once(self.gpu is not None)
        (run.path / "logs").mkdir(exist_ok=True)
        self._servers = servers.Servers(run.path / "logs" / "probe-server.log")
        self._proven: dict[tuple, str] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="probes-", dir=run.path))
        self._store = run.path / caches.STORE
        self._kept: dict[str, Path] = {}
        self._winners: dict[str, dict] = {}

    def __enter__(self) -> "ProbePool":
        return self

    def __exit__(self, *exc) -> None:
        self._servers.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, probes: list[Probe]) -> list[Record]:
        """Run all probes; their records, in the given order, are in the run folder when this returns.

        tuning=cached first runs a feeder, whose cache folder is copied; tuning=pinned runs one when the subject
        has no pinned entry, and takes its winners.
        """
        feeders = {p.id: _feeder(p) for p in probes if p.arm and p.arm.tuning == "cached"}
        self._batch([f for f in feeders.values() if self.gpu])
        done = self._batch([p for p in probes], {k: f.id for k, f in feeders.items()})
        lacking = {p.id: _feeder(p) for p in probes if done[p.id].payload.get("needs") == "winners"}
        if lacking:
            self._winners = {r.probe: r.tuning for r in self._batch(list(lacking.values())).values()}
            again = [p for p in probes if p.id in lacking]
            done |= self._batch(again, {k: f.id for k, f in lacking.items()}, final=True)
        return [done[p.id] for p in probes]

    def _batch(self, probes: list[Probe], feeders: dict[str, str] | None = None, final: bool = False):
        """Run probes that need nothing of each other; {probe id: record}."""
        feeders, done = feeders or {}, {}
        unique = list({p.id: p for p in probes}.values())
        for probe in unique:
            if not self.gpu and probe.kind in ("step", "gain", "sweep", "floor") and probe.args.get("device") != "cpu":
                self._keep(
                    probe, self._without_run(probe, "skipped", "needs a CUDA GPU, and this machine has none"), done
                )
        todo = [p for p in unique if p.id not in done]
        for probe in todo:
            self._servers.start(probe.environment, probe.preload)
        shared = [p for p in todo if not p.exclusive]
        if shared:
            with lease.hold(self.gpu, False, self.on_event):
                self._together(shared, self.parallel, feeders, done, final)
        for probe in (p for p in todo if p.exclusive):
            try:
                with lease.hold(self.gpu, True, self.on_event, patience=probe.deadline):
                    self._together([probe], 1, feeders, done, final)
            except lease.Busy:
                reason = f"timing: other runs held the GPU for {probe.deadline:g} s"
                self._keep(probe, self._without_run(probe, "not_run", reason), done)
        return done

    def _together(self, probes, parallel, feeders, done, final) -> None:
        waiting, running = list(probes), {}
        selector = selectors.DefaultSelector()
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    probe = waiting.pop(0)
                    started = self._ask(probe, feeders.get(probe.id), done)
                    if started:
                        running[started.connection] = started
                        selector.register(started.connection, selectors.EVENT_READ)
                for key, _ in selector.select(1.0) if running else ():
                    one = running[key.fileobj]
                    if one.read():
                        selector.unregister(one.connection)
                        del running[one.connection]
                        self._finish(one, done, final)
        finally:
            # Closing a connection is how a probe is given up: its supervisor then ends it.
            for one in running.values():
                one.connection.close()

    def _ask(self, probe: Probe, feeder: str | None, done) -> _Running | None:
        try:
            self._prove(probe)
            connection = self._servers.connect(probe.environment, probe.preload)
        except servers.ServerError as error:
            self._keep(probe, self._without_run(probe, "not_run", str(error)), done)
            return None
        scratch = Path(tempfile.mkdtemp(prefix=f"{probe.id}-", dir=self._scratch))
        counts = caches.prepare(scratch, self._cache_source(probe, feeder))
        log = f"logs/{probe.id}.log"
        servers.ask(
            connection,
            {
                "probe": probe.to_json(),
                "run": str(self.run_folder.path),
                "nonce": self.run_folder.nonce,
                "scratch": str(scratch),
                "log": str(self.run_folder.path / log),
                "cwd": None,
                "given": {"winners": self._winners.get(feeder or "", {}), "caches": counts},
            },
        )
        return _Running(probe, connection, scratch, log)

    def _cache_source(self, probe: Probe, feeder: str | None) -> Path | None:
        if probe.arm and probe.arm.tuning == "cached" and feeder in self._kept:
            return self._kept[feeder]
        if probe.kind not in KEEPING:
            return None
        cold = probe.arm and (probe.arm.warmup in COLD or probe.arm.caches == "empty")
        return None if cold else self._store_of(probe)

    def _store_of(self, probe: Probe) -> Path:
        """Each subject's own: in a run of many subjects a probe copies only what it may use."""
        name = probe.subject.target if probe.subject else ""
        return self._store / hashlib.sha256(name.encode()).hexdigest()[:12]

    def _finish(self, one: _Running, done, final) -> None:
        one.connection.close()
        ended = time.time()
        log = self.run_folder.path / one.log
        if log.exists():  # none of a probe whose server ended before it began
            scrub_file(log, str(self.run_folder.path), LOG_BYTES)
        record = outcome.record_of(one.probe, self.run_folder, one.scratch, one.end, one.began, ended, one.log)
        if one.probe.role == "feeder":
            self._kept[one.probe.id] = one.scratch
        else:
            if one.probe.kind in KEEPING:
                caches.merge(one.scratch, self._store_of(one.probe))
            shutil.rmtree(one.scratch, ignore_errors=True)
        self._keep(one.probe, record, done, final)

    def _keep(self, probe: Probe, record: Record, done, final: bool = True) -> None:
        done[probe.id] = record
        if record.payload.get("needs") == "winners" and not final:
            return
        self.run_folder.append(record)
        root = f"  {record.root.code or ''} {record.root.name or record.root.type}" if record.root else ""
        self.on_event(f"{record.status:<8}{record.seconds:6.1f} s  {probe.role}: {probe.name}{root}")

    def _without_run(self, probe: Probe, status: str, reason: str) -> Record:
        return outcome.without_run(probe, self.run_folder, status, reason, time.time())

    def _prove(self, probe: Probe) -> None:
        """Once for each server: a throw-away child computes on the GPU. Raises ServerError when it cannot."""
        key = (tuple(sorted(probe.environment.items())), probe.preload)
        if key not in self._proven:
            try:
                self._proven[key] = self._proof(probe)
            except servers.ServerError as error:  # what did not start once is not started anew for each probe
                self._proven[key] = str(error)
        if self._proven[key]:
            raise servers.ServerError(self._proven[key])

    def _proof(self, probe: Probe) -> str:
        """What is wrong with the server of this probe, or nothing."""
        test = Probe(kind="build", job="capturebook.probes.child:prove", env=probe.environment, preload=probe.preload)
        connection = self._servers.connect(probe.environment, probe.preload)
        scratch = Path(tempfile.mkdtemp(prefix="proof-", dir=self._scratch))
        log = self.run_folder.path / "logs" / "probe-server.log"
        with contextlib.closing(connection):
            request = {"probe": test.to_json(), "run": str(self.run_folder.path), "nonce": self.run_folder.nonce}
            servers.ask(connection, {**request, "scratch": str(scratch), "log": str(log), "cwd": None, "given": {}})
            one = _Running(test, connection, scratch, "")
            while not one.read():
                pass
        record = outcome.record_of(test, self.run_folder, scratch, one.end, one.began, time.time(), "")
        shutil.rmtree(scratch, ignore_errors=True)
        if record.status != "pass":
            why = record.reason or (record.root.text if record.root else record.status)
            return f"probe server: its proof failed: {why}"
        if self.gpu and record.payload["device"] == "cpu":
            return "probe server: torch sees no CUDA device in its children, though the driver lists one"
        return ""


def _feeder(probe: Probe) -> Probe:
    """The live run whose winners or cache folder a pinned or cached arm starts from."""
    arm = probe.arm.changed(
        tuning="live", warmup="warm1", capture="none", compile="none", fullgraph=False, dynamic=None, caches="empty"
    )
    args = {**probe.args, "cache_results": probe.arm.tuning == "cached"}
    return Probe(
        kind="step",
        subject=probe.subject,
        arm=arm,
        seed=probe.seed,
        role="feeder",
        args=args,
        env=probe.env,
        preload=probe.preload,
        deadline=probe.deadline,
        label=f"feeder of {probe.arm.tuning}",
        notebook=probe.notebook,
    )
