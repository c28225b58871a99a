"""Probes: one question to a subject in one process, with a deadline, witnesses and a record at the end."""

from .pool import ProbePool, print_event
from .probe import Probe

__all__ = ["Probe", "ProbePool", "print_event"]
