"""Start a script or a server, here or over SSH, with each stage proven before the next."""

from .checkout import run_there
from .control import attach, stop
from .launcher import launch
from .order import launch_in_order
from .spec import LaunchFile, LaunchFileError, load, validated
from .store import Entry, LaunchError, entries
from .sweeping import sweep

__all__ = [
    "Entry",
    "LaunchError",
    "LaunchFile",
    "LaunchFileError",
    "attach",
    "entries",
    "launch",
    "launch_in_order",
    "load",
    "run_there",
    "stop",
    "sweep",
    "validated",
]
