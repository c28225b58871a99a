"""What the server notebook calls: a launch from its parameters, its load, a comparison, and the end."""

import os
import sys
from pathlib import Path

from ...chain.folder import RunFolder
from ...records import Record, read
from ..control import stop
from ..launcher import launch
from ..spec import LaunchFile, LaunchFileError, load
from ..store import into_run
from ..sweeping import sweep
from .compare import Compared, compare
from .comparison import load_comparison

PARAMETERS = {"launch_file": str, "host": str, "concurrency": list, "requests": int, "output_tokens": int,
              "comparison": str, "run_dir": str}  # fmt: skip


class ServerSession:
    """One launch from a notebook. `spec` is its launch file; here (no `host`) the programs beside this kernel's
    interpreter come first on PATH, as in its virtual environment."""

    def __init__(self, values: dict):
        self.values, self.host = values, values["host"] or None
        self.spec = self._beside(load(values["launch_file"]))
        self.compared: Compared | None = None
        self.launched: Record | None = None
        self.swept: Record | None = None

    def launch(self) -> Record:
        """Start it and follow it until it is ready or is not."""
        self.launched = self._kept(launch(self.spec, self.host))
        return self.launched

    def sweep(self) -> Record | None:
        """Ask a server that is ready; None when it is not, or has no adapter."""
        if self.launched.status == "pass" and self.spec.adapter:
            sizes = (self.values["requests"], 32, self.values["output_tokens"])
            self.swept = self._kept(sweep(self.launched.run, tuple(self.values["concurrency"]), *sizes))
        return self.swept

    def stop(self) -> Record | None:
        """End what is running, by its recorded process. None when nothing is."""
        running = self.launched.status == "pass" and self.spec.result is None
        return stop(self.launched.run) if running else None

    def compare(self) -> Compared | None:
        """Run the comparison, if one is named, once the launch is stopped."""
        if self.values["comparison"]:
            self.compared = compare(load_comparison(self.values["comparison"]), self.host)
            for record in read(self.compared.path / "records.jsonl")[0]:
                self._kept(record)
        return self.compared

    def conclusion(self) -> str:
        """One paragraph from the records."""
        record = self.launched
        if record.status != "pass":
            return f"Not ready: {record.reason}. {record.payload['todo']}"
        said = f"Ready after {record.payload['seconds']:g} s"
        if self.swept and self.swept.status == "pass":
            best = max(self.swept.payload["sweep"], key=lambda row: row["tokens_per_s"])
            said += f"; at most {best['tokens_per_s']:g} tok/s, at concurrency {best['concurrency']}"
        elif self.swept:
            said += f"; under load: {self.swept.reason}"
        return f"{said}."

    def _kept(self, record: Record) -> Record:
        """The record, copied into the run that `run_dir` names, whose report then shows it."""
        if self.values["run_dir"]:
            into_run(record, self.values["run_dir"])
        return record

    def _beside(self, spec: LaunchFile) -> LaunchFile:
        if self.host:
            return spec
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return spec.model_copy(update={"env": {"PATH": here, **spec.env}})


def start(names: dict) -> ServerSession:
    """Validate the notebook's parameters (its globals()). Raises LaunchFileError, one line, naming the parameter,
    what was given and what is allowed; RunFolderError for a `run_dir` that holds no run."""
    for name, kind in PARAMETERS.items():
        if not isinstance(names.get(name), kind) or isinstance(names[name], bool):
            raise LaunchFileError(f"{name}: given {names.get(name)!r}; allowed: {kind.__name__}")
    for many in [*names["concurrency"], names["requests"], names["output_tokens"]]:
        if not isinstance(many, int) or isinstance(many, bool) or not 1 <= many <= 1024:
            raise LaunchFileError(f"concurrency, requests, output_tokens: given {many!r}; allowed: 1 to 1024")
    if not names["concurrency"]:
        raise LaunchFileError("concurrency: given []; allowed: one or more")
    if names["run_dir"]:
        RunFolder.open(names["run_dir"])
    return ServerSession({name: names[name] for name in PARAMETERS})
