"""A point of the decode step's sweep, and several in one process, with stand-ins for CUDA: tuning, replays, profile."""

import contextlib
from types import SimpleNamespace

import torch

from capturebook.measure import (
    decode_point,
    decode_profile,
    decode_sweep,
    decode_variants,
    kernel_classes,
    several_places,
)
from capturebook.measure.rows import sweep_points
from capturebook.subjects.decode_step import step
from decode_cases import context, recorded


def test_live_tuning_is_the_attentions_alone_and_once(monkeypatch):
    """A probe's cold process compiles each configuration of each tuning: the indexer's are pinned, and one key less
    each for the lists, whose widths differ between layers."""
    pinned = []
    monkeypatch.setattr(step, "capability", lambda: 90)
    monkeypatch.setattr(step.indexer_pinned, "pin", lambda *given: pinned.append(given))
    monkeypatch.setattr(step, "pin_entry", lambda tuner, entry: pinned.append(entry))
    tuner = SimpleNamespace(keys=["batch_bucket", "HEADS", "window_width", "extra_width"])
    step.tune({"config": {}}, tuner, "bounded", "fp8", "live")
    assert tuner.keys == ["batch_bucket", "HEADS"] and pinned == [("bounded", 90, "fp8")]
    step.tune({"config": {}}, tuner, "torch", "bf16", "pinned")
    assert pinned[1:] == [{"config": {}}]


def test_a_long_step_is_replayed_less_often_a_sample():
    calls = []

    def replays_ms(graph, count):
        calls.append((graph, count))
        return graph * count

    point = SimpleNamespace(graphs={"fast": 1.0, "slow": 50.0}, layers=2, replays={})
    point.clock, point._replays_ms = lambda what: contextlib.nullcontext(), replays_ms
    assert decode_point.Point.time(point, 3) == {"fast": [500.0] * 3, "slow": [25000.0] * 3}
    assert max(count for graph, count in calls if graph == 50.0) == 1 and calls.count((1.0, 8)) == 4
    assert point.replays == {"fast": 8, "slow": 1}


def test_as_many_replays_are_profiled_as_a_sample_has(monkeypatch):
    """From the same positions on; the class of each launch is that of the plain run, with stand-ins for CUDA's part."""
    positions, parts, events = torch.zeros(2, dtype=torch.int64), [], []

    def step(what):
        def run(*inputs):
            events.append((what, int(positions[0])))
            positions.add_(1)

        return run

    @contextlib.contextmanager
    def part(name):
        begun = len(events)
        yield
        parts.append((name, events[begun:]))

    def profile(run):
        run()
        return parts

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: None)
    monkeypatch.setattr(kernel_classes, "part", part)
    monkeypatch.setattr(kernel_classes, "profile", profile)
    monkeypatch.setattr(kernel_classes, "parted", dict)
    monkeypatch.setattr(kernel_classes, "launched", lambda seen: seen)
    seen = {"us": {"glue": 6.0}, "launches": {"glue": 3.0}, "top": []}
    seen["others"] = [{"kernel": "a", "plain": "b", "class": "moe", "launches": 6.0}]
    given = []
    monkeypatch.setattr(kernel_classes, "times", lambda replays, order: given.append((replays, order)) or seen)
    monkeypatch.setattr(decode_variants, "function", lambda stack, switches, label: step("plain"))
    point = SimpleNamespace(
        graphs={name: SimpleNamespace(replay=step("replay")) for name in ("stock", "and overlap")},
        switches=decode_variants.RUNGS, first_call_s=dict.fromkeys(["stock", "and overlap"], 0.5), stack=None,
        inputs=(), pin=lambda name: None, positions=positions, start=torch.full((2,), 7), replays={"stock": 3},
        clock=lambda what: contextlib.nullcontext(), layers=3,
    )  # fmt: skip
    found = decode_profile.classes(point)
    assert given == [([[("replay", 7)], [("replay", 8)], [("replay", 9)]], [("plain", 7)])]
    assert found["stock"]["classes"] == {"glue": 2.0} and found["stock"]["launches"] == {"glue": 1.0}
    assert found["stock"]["profiled"] == 3 and found["stock"]["others"][0]["launches"] == 2.0
    assert found["and overlap"] == {"classes": None, "first_call_s": 0.5}


def test_what_a_call_takes_without_a_graph():
    """The first call does not count; the host's noise shows as the span of the others, variants in turn."""
    took = {"stock": iter([90.0, 4.0, 6.0, 5.0, 8.0, 5.0]), "and overlap": iter([70.0, 3.0, 1.0, 2.0, 2.0, 2.0])}
    turns = []
    point = SimpleNamespace(graphs=dict.fromkeys(took), layers=2, clock=lambda what: contextlib.nullcontext())
    point._call_ms = lambda name: turns.append(name) or next(took[name])
    assert decode_point.Point.called_us(point) == {
        "stock": {"called_us": 2500.0, "called_least_us": 2000.0, "called_most_us": 4000.0},
        "and overlap": {"called_us": 1000.0, "called_least_us": 500.0, "called_most_us": 1500.0},
    }
    assert turns[:4] == ["stock", "and overlap", "and overlap", "stock"]


class Timed:
    """A point as the job uses it: everything is right but at batch 8, and batch 256 does not fit."""

    drawn = 0

    def __init__(self, asked, seed, weights=None):
        if asked["batch"] == 256:
            raise torch.OutOfMemoryError("no room. Tried")
        Timed.drawn += weights is None
        self.asked, self.weights, self.seconds = asked, weights or ["drawn"], {"build": 1.0}

    def verify(self, name, keep):
        wrong = self.asked["batch"] == 8
        return [{"call": name, "output": "x", "error": float(wrong), "tolerance": 0.1, "ok": not wrong}]

    def time(self, rounds):
        return {name: [float(self.asked["batch"])] * rounds for name in self.asked["variants"]}

    def spread(self, samples):
        return {"median_us": samples[0], "tokens_per_second": 1.0}

    def sizes(self):
        return {"layers": 3}

    def ends_us(self):
        return 5.0

    def called_us(self):
        return dict.fromkeys(self.asked["variants"], {"called_us": 7.0, "called_most_us": 9.0})

    def described(self, name):
        return {"nodes": 30.0, "parallel": False}


def test_places_of_one_process(monkeypatch):
    """A wrong place and one that does not fit have their reasons, others keep their times; weights are shared."""
    monkeypatch.setattr(decode_sweep, "Point", Timed)
    monkeypatch.setattr(decode_sweep, "classes", lambda point, wanted: dict.fromkeys(point.asked["variants"], {}))
    for module in (decode_sweep, several_places):
        monkeypatch.setattr(module, "foreign_processes", list)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**37, 2**37))
    variants = {name: {"kernel": name, "tuning": "pinned"} for name in ("stock", "and overlap")}
    shared = {"context": 8192, "max_context": 131072, "variants": variants}
    places = [{"batch": batch, "profile": batch == 1, **shared} for batch in (1, 8, 64, 256)]
    asked = {"layer": "csa", "step": {"tp": 8}, "places": places}
    job = context(asked, samples=2, memory_gib=0.0)
    found = decode_sweep.run(job)
    record = recorded({**job.fields, **found}, asked)
    points = {(p["variant"], p["batch"]): p for p in sweep_points([record])}
    assert len(points) == 8 and Timed.drawn == 1 and found["status"] == "pass"
    assert points["stock", 64]["us"] == [64.0, 64.0] and points["stock", 64]["median_us"] == 64.0
    assert points["and overlap", 1]["layer"] == "csa" and points["and overlap", 1]["ends_us"] == 5.0
    assert points["stock", 1]["called_us"] == 7.0 and points["stock", 1]["called_most_us"] == 9.0
    assert points["stock", 64]["status"] == "pass" and "called_us" not in points["stock", 64]
    assert points["stock", 8]["status"] == "wrong" and points["stock", 8]["us"] == []
    assert "is off by 1.0 (not timed)" in points["stock", 8]["reason"]
    assert points["stock", 256]["status"] == "skipped" and "does not fit" in points["stock", 256]["reason"]
    assert all(check["ok"] for check in found["checks"]) and len(found["checks"]) == 4
    alone = context(asked | {"places": asked["places"][1:2]}, samples=2, memory_gib=0.0)
    assert decode_sweep.run(alone)["status"] == "wrong"
