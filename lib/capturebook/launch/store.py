"""What this machine knows of launches: outputs/launches/ID with launch.json, records.jsonl and a redacted log."""

import json
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

from .. import paths
from ..chain.folder import RunFolder
from ..chain.runfiles import stamp, write_json
from ..records import Record, append, probe_id, read

SCHEMA = 1
FOLDER = "outputs/launches"
STOPPING = "stopping"
HELD = ("id", "nonce", "name", "host", "folder", "began", "state", "file", "resolved")
"""What every launch.json holds."""


class LaunchError(ValueError):
    """A launch that is not there, or whose file is damaged. One line."""


class Entry:
    """One launch as this machine knows it. `info` is launch.json; it names the host, so it stays on this machine."""

    def __init__(self, path: Path, info: dict):
        self.path = path
        self.info = info

    @classmethod
    def create(cls, name: str, host: str | None, values: dict, facts: dict) -> "Entry":
        """A new launch, under a name of its own; stored before anything is started anywhere."""
        nonce = secrets.token_hex(8)
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "launch"
        path = paths.resolve(FOLDER) / f"{slug}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{nonce[:4]}"
        (path / "logs").mkdir(parents=True)
        info = {
            "schema_version": SCHEMA,
            "id": path.name,
            "nonce": nonce,
            "name": name,
            "host": host,
            "folder": None,
            "began": stamp(),
            "state": "preparing",
            "file": values,
            "resolved": None,
            **facts,
        }
        entry = cls(path, info)
        entry.save()
        return entry

    @classmethod
    def open(cls, name: str) -> "Entry":
        """By id, or by its beginning if only one launch has it."""
        root = paths.resolve(FOLDER)
        found = [path for path in sorted(root.glob("*/launch.json")) if path.parent.name.startswith(name)]
        exact = [path for path in found if path.parent.name == name]
        if not name or not (exact or found):
            raise LaunchError(f"launch: given {name!r}, which is none; see `capturebook launches`")
        if not exact and len(found) > 1:
            raise LaunchError(f"launch: {name!r} is the beginning of {len(found)} launches; give more of the id")
        path = (exact or found)[0]
        try:
            info = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as exc:
            raise LaunchError(f"launch: {paths.shown(path)} is damaged: {exc}") from None
        if not isinstance(info, dict) or info.get("schema_version") != SCHEMA:
            given = info.get("schema_version") if isinstance(info, dict) else None
            raise LaunchError(f"launch: {paths.shown(path)} has schema {given}; this reads {SCHEMA}")
        if lost := [key for key in HELD if key not in info]:
            raise LaunchError(f"launch: {paths.shown(path)} is damaged: it holds no {lost[0]!r}")
        return cls(path.parent, info)

    @property
    def id(self) -> str:
        return self.info["id"]

    @property
    def log_path(self) -> Path:
        """The program's output, redacted, as far as it was read."""
        return self.path / "logs" / "program.log"

    def update(self, **facts) -> None:
        self.info.update(facts)
        self.save()

    def save(self) -> None:
        write_json(self.path / "launch.json", self.info)

    def append(self, record: Record) -> None:
        append(self.path / "records.jsonl", record)

    def records(self) -> list[Record]:
        return read(self.path / "records.jsonl")[0]

    def verdict(self) -> Record | None:
        """The record that counts: that of the stop that ended it, for who followed it then saw an end and no reason;
        else the last."""
        records = self.records()
        return next((record for record in records if record.payload.get("stopped")), records[-1] if records else None)

    @property
    def stopping(self) -> bool:
        """Whether somebody stops it, or did, from whichever process."""
        return (self.path / STOPPING).exists()

    def note_stop(self) -> None:
        """Say so before it is done: who follows it now sees an end. A file of its own, for each process writes the
        whole of launch.json."""
        (self.path / STOPPING).touch()


def beside(record: Record, folder: Path, **facts) -> Record:
    """The record of a launch as another folder may hold it: its log copied there, `facts` added to its payload."""
    log, kept = Entry.open(record.run).log_path, ""
    if log.exists():
        kept = f"logs/launch-{record.run}.log"
        (folder / "logs").mkdir(exist_ok=True)
        shutil.copyfile(log, folder / kept)
    return record.model_copy(update={"log": kept, "payload": {**record.payload, **facts}})


def into_run(record: Record, run_dir: str | Path) -> None:
    """Copy a launch's record and log into a run, under the run's nonce, so that the run's report shows the launch.

    Raises RunFolderError when there is no such run.
    """
    run = RunFolder.open(run_dir)
    probe = probe_id("launch", None, None, 0, name=record.run, where=record.started)
    run.append(beside(record, run.path).model_copy(update={"run": run.name, "nonce": run.nonce, "probe": probe}))


def entries() -> list[Entry]:
    """All launches of this checkout, oldest first."""
    found = [Entry.open(path.parent.name) for path in paths.resolve(FOLDER).glob("*/launch.json")]
    return sorted(found, key=lambda entry: entry.info["began"])
