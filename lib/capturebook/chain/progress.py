"""logs/progress.log: one line for each named stage, written by notebooks and chain, shown live by the chain."""

from datetime import UTC, datetime
from pathlib import Path

from ..files import named


def line(notebook: str, text: str) -> str:
    """`12:00:03Z  02_graph_capture    text`, in UTC as the records are."""
    return f"{datetime.now(UTC):%H:%M:%SZ}  {notebook:<19}  {' '.join(text.splitlines())}"


def write(run: Path, notebook: str, text: str) -> str:
    """Append one line to the run's progress log; returns it."""
    new = line(notebook, text)
    log = run / "logs" / "progress.log"
    with named(log), open(log, "a", encoding="utf-8") as file:
        file.write(new + "\n")
    return new


class Tail:
    """Copies whole lines that are new in a run's progress log to a stream."""

    def __init__(self, run: Path, out):
        self._path = run / "logs" / "progress.log"
        self._out = out
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    def pump(self) -> None:
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        if newline:
            self._offset += len(whole) + 1
            self._out.write(whole.decode("utf-8", "replace") + "\n")
            self._out.flush()
