"""The record of a probe, the arm it ran, and the files they live in. Imports nothing else of capturebook."""

from .arm import OPTION, SUBJECT_FACTORS, Arm, Question, arm_from, parse_factors, read_option, write_option
from .record import Check, Event, Frame, Link, Record, Subject, finite, printable, probe_id
from .store import append, frame, latest, read

__all__ = [
    "OPTION",
    "SUBJECT_FACTORS",
    "Arm",
    "Check",
    "Event",
    "Frame",
    "Link",
    "Question",
    "Record",
    "Subject",
    "append",
    "arm_from",
    "finite",
    "frame",
    "latest",
    "parse_factors",
    "printable",
    "probe_id",
    "read",
    "read_option",
    "write_option",
]
