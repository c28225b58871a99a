"""Logs and executed notebooks of a run as they may be shared: without this machine's folders and its host's name."""

from pathlib import Path

from ..probes.scrub import LOG_BYTES, scrub_file


def scrub_logs(run: Path) -> None:
    """For the holder of the run, when nothing writes to them any more. What is clean already stays as it is."""
    for log in run.glob("logs/*.log"):
        scrub_file(log, str(run), LOG_BYTES)
    for notebook in run.glob("notebooks/*.ipynb"):
        scrub_file(notebook, str(run))
