"""Run an exported script in a process of its own, from empty caches, and compare what it shows with the record."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..attribution import evidence as ev
from ..probes.processes import end_session
from ..probes.scrub import scrub
from ..probes.tempfolder import TempFolder
from ..records import Record
from ..records.cuda_errors import code_of
from .script import expected


@dataclass(frozen=True)
class Proof:
    """`holds` only if the script ran to its end here and showed the record's root; `shown` is what it showed."""

    holds: bool
    says: str
    shown: dict


def prove(script: Path, record: Record, deadline: float = 120.0) -> Proof:
    """Run the script with this interpreter and judge by what its process printed and how it ended."""
    with TempFolder("repro") as scratch:
        process = subprocess.Popen(
            [sys.executable, str(script.resolve())],
            cwd=scratch,
            env=_environment(Path(scratch)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        try:
            printed, complaints = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            return Proof(False, f"it did not end within {deadline:g} s", {"status": "timeout"})
        finally:
            end_session(process)
    shown = _shown(printed, process.returncode)
    return _compared(shown, record, complaints)


def _environment(scratch: Path) -> dict[str, str]:
    """This process's, with private caches and without the folders that hold capturebook."""
    kept = [
        p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not (Path(p) / "capturebook").exists()
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(kept), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**env, "TRITON_CACHE_DIR": str(scratch / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor")}


def _shown(printed: str, code: int) -> dict:
    lines = [line for line in printed.splitlines() if line.startswith("shown {")]
    if lines:
        shown = json.loads(lines[-1].removeprefix("shown "))
        if shown["status"] == "fail":
            known = code_of(shown["text"])
            shown["code"] = known[0] if known else None
        return shown
    return {"status": "died", "code": code if code >= 0 else None, "signal": -code if code < 0 else None}


def _compared(shown: dict, record: Record, complaints: str) -> Proof:
    wanted = expected(record)
    if shown["status"] != wanted["status"]:
        last = (complaints.strip().splitlines() or [""])[-1]
        return Proof(False, f"it showed {_words(shown)}, not {_words(wanted)} ({scrub(last)[:200]})", shown)
    if wanted["status"] == "wrong":
        same = shown["call"].startswith(wanted["call"])
    elif wanted["status"] == "died":
        same = (shown["code"], shown["signal"]) == (wanted.get("code"), wanted.get("signal"))
    else:
        root = ev.root_of(record)
        same = shown["code"] == root.code
        if root.code is None:
            same = shown["type"] == root.type and _skeleton(shown["text"]) == _skeleton(root.text)
    if same:
        return Proof(True, f"run in a process of its own, it shows the same: {_words(shown)}", shown)
    return Proof(False, f"it showed {_words(shown)}, not {_words(wanted)}", shown)


def _skeleton(text: str) -> str:
    """A message's first line without what changes from process to process: numbers, addresses, paths."""
    return re.sub(r"0x[0-9a-f]+|\d+|\S*/\S*", "#", text.partition("\n")[0])


def _words(what: dict) -> str:
    told = [what.get("code"), what.get("type"), what.get("call")]
    if what.get("signal"):
        told.append(f"signal {what['signal']}")
    return " ".join(str(word) for word in (what["status"], *told) if word is not None)
