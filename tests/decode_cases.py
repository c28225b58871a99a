"""Points of the decode step's sweep as records give them, made up; what its jobs are given, and their records."""

import json
from types import SimpleNamespace
from typing import get_args

from capturebook.measure.kernel_classes import CLASSES
from capturebook.records import Record, Subject
from capturebook.records.record import Stage


def timed(variant, layer, us, batch=64, **classes):
    """A point as `rows.sweep_points` gives it."""
    classes = dict.fromkeys(CLASSES, 0.0) | classes if classes else None
    launches = classes and dict.fromkeys(CLASSES, 2)
    place = {"batch": batch, "context": 8192, "max_context": 131072, "ends_us": 5.0}
    point = {"variant": variant, "layer": layer, "us": [us], "median_us": us, "classes": classes, "launches": launches}
    return point | place


def context(options, **args):
    def stage(name):
        assert name in get_args(Stage)

    probe = SimpleNamespace(subject=SimpleNamespace(options=options))
    return SimpleNamespace(probe=probe, args=args, seed=0, fields={}, stage=stage)


def recorded(found, asked, **more):
    """The record of a job's outcome, as the pool makes one."""
    times = {"started": "2026-11-30T12:00:00.000+00:00", "ended": "2026-11-30T12:00:01.000+00:00"}
    subject = Subject(target="capturebook.subjects.decode_step:build", options=asked)
    ids = {"run": "r", "probe": "p", "nonce": "n", "kind": "sweep", "subject": subject}
    return Record(**ids, **times, **json.loads(json.dumps(found)), **more)
