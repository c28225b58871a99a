"""The workbook itself as a launch: deliver the checkout, run the chain with the host's Python, fetch the run."""

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from .. import paths, provenance
from ..chain.runfiles import fresh
from ..records import Record
from . import launcher
from .outcome import Outcome
from .spec import LaunchFileError, validated
from .stages import NotHeld
from .store import into_run
from .there import unpack

DEADLINE = 4 * 3600.0
"""Seconds for a whole chain on the host."""

FETCHED = "fetched before"


def tracked_names() -> list[str]:
    """The files that git tracks, relative to the repository. Raises LaunchFileError without git."""
    root = paths.repository()
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True)
    if listed.returncode:
        raise LaunchFileError(
            f"--host: the checkout is delivered by git's list of files: {listed.stderr.decode().strip()}"
        )
    names = sorted(filter(None, listed.stdout.decode("utf-8", "surrogateescape").split("\0")))
    # A file that was deleted and not yet committed is tracked and not there.
    return [name for name in names if (root / name).is_file()]


def delivered(what: str, path: Path) -> str:
    """The name there of a file of this checkout. Raises LaunchFileError for one that is not delivered."""
    root, path = paths.repository(), path.resolve()
    name = str(path.relative_to(root)) if path.is_relative_to(root) else ""
    if name not in tracked_names():
        allowed = "a file of this checkout that git tracks"
        raise LaunchFileError(f"{what}: {paths.shown(path)!r} is not delivered to a host; allowed: {allowed}")
    return name


def tracked() -> bytes:
    """The checkout as a tar.gz: the files that git tracks, as they are on disk. Raises LaunchFileError without git."""
    root = paths.repository()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for name in tracked_names():
            archive.add(root / name, arcname=name, filter=_nobody)
    return buffer.getvalue()


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def run_there(
    host: str | None,
    preset: str,
    arguments: list[str],
    python: str = "python3",
    folder: str | None = None,
    on_event: Callable[[str], None] = print,
    show: Callable[[str], None] | None = None,
) -> Record:
    """`capturebook run ARGUMENTS` on a host with its `python`; `preset` names the run folder, outputs/<run>, which is
    fetched here and checked by nonce and sha256.

    The record's payload has "run" (its folder here) and "status" (the exit status of the chain there) when it passed.
    """
    name = fresh(preset or "run").name
    with tempfile.TemporaryDirectory() as made:
        local = Path(made)
        (local / "checkout.tar.gz").write_bytes(tracked())
        (local / "request.json").write_text(json.dumps({"run": name, "arguments": arguments}), encoding="utf-8")
        (local / "there.py").write_bytes((resources.files(__package__) / "there.py").read_bytes())
        spec = validated(
            {
                "name": f"run-{name}",
                "script": "there.py",
                "interpreter": [python],
                "args": ["{nonce}"],
                "files": ["checkout.tar.gz", "request.json"],
                "folder": folder,
                "deadline": DEADLINE,
                "result": {"log": "^run ended {nonce} "},
                "source": str(local / "run.yaml"),
            }
        )
        return noted(launcher.launch(spec, host, on_event, show, after=fetch, run=name, code=provenance.code_tree()))


def noted(record: Record) -> Record:
    """The record of a launch that ran the chain; a run that it fetched holds it too."""
    if record.status == "pass" and record.reason != FETCHED:
        into_run(record, record.payload["run"])
    return record


def fetch(following, outcome: Outcome) -> Outcome:
    """Fetch an ended launch's run folder into outputs/. Raises NotHeld when it is not the one announced."""
    info = following.entry.info
    end = json.loads(following.log.found["result"].partition(f"run ended {info['nonce']} ")[2])
    place = paths.repository() / "outputs" / info["run"]
    payload = {"run": paths.shown(place), "status": end["status"]}
    if end["code"] != info["code"]:
        untracked = "the host's lib, notebooks and params are not ours: files that git does not track stayed here"
        following.caveats.append(untracked)
    if place.exists():
        return Outcome("pass", FETCHED, payload={**outcome.payload, **payload})
    with following.stages.stage("fetch") as evidence:
        packed = following.host.fetch(f"{info['folder']}/work/run.tar.gz", end["bytes"])
        got = hashlib.sha256(packed).hexdigest()
        if got != end["sha256"]:
            raise NotHeld(f"run.tar.gz arrived with sha256 {got[:12]}, there it is {end['sha256'][:12]}", "C2")
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetch-") as part:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                unpack(archive, Path(part))
            nonce = json.loads((Path(part) / info["run"] / "run.json").read_text(encoding="utf-8"))["nonce"]
            if nonce != end["nonce"]:
                raise NotHeld(f"the fetched run has nonce {nonce!r}, the one that ended {end['nonce']!r}", "C8")
            try:
                (Path(part) / info["run"]).rename(place)
            except OSError:
                if not place.exists():
                    raise
                # Another follower was faster.
                return Outcome("pass", FETCHED, payload={**outcome.payload, **payload})
        evidence.update(run=paths.shown(place), bytes=len(packed), nonce=nonce)
    return Outcome("pass", "", payload={**outcome.payload, **payload})
