"""The jobs beside the decode step's sweep, on a CPU: kernels compiled beforehand, batch buckets, torch.compile.

CUDA has stand-ins: a bucket's graph is the step itself, and Dynamo's backend runs what it traced as it is.
"""

import contextlib
import dataclasses
import functools
import json
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from capturebook.measure import (
    decode_buckets,
    decode_compile,
    decode_point,
    decode_profile,
    decode_sweep,
    decode_variants,
    decode_warm,
    kernel_classes,
    several_places,
)
from capturebook.measure.rows import sweep_points
from capturebook.records import Record, Subject
from capturebook.records.record import Stage
from capturebook.report import conclusions, figures_decode, figures_decode_jobs
from capturebook.subjects.decode_step import buckets, step
from capturebook.subjects.decode_step.step import assemble, starts

KINDS = ["swa", "csa", "hca"]


@pytest.fixture
def on_cpu(monkeypatch):
    """What jobs ask of CUDA, on a CPU: small layers, and no pins, which go by the GPU."""

    def small(kinds, **options):
        return assemble(kinds, **options | {"size": "small", "device": "cpu"})

    monkeypatch.setattr(step, "assemble", small)
    monkeypatch.setattr(decode_variants, "pin_all", lambda *args, **formats: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: None)
    for module in (decode_warm, decode_buckets):
        monkeypatch.setattr(module, "DEVICE", "cpu")


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


@pytest.mark.parametrize("unit", decode_warm.UNITS)
def test_every_unit_is_a_step(on_cpu, unit):
    asked = {"unit": unit, "batch": 2, "layers": KINDS, "max_context": 512, "step": {"size": "small"}, "part": "warm"}
    found = decode_warm.run(context(asked))
    assert found == {"status": "pass", "payload": {"part": "warm", "unit": unit, "batch": 2}}


@pytest.mark.parametrize("experts", ["bf16", "fp8"])
def test_operators_meet_without_the_experts_what_they_meet_with_them(on_cpu, experts):
    """Kernels are compiled for dtypes, strides and sizes: each operator is given the same as in a step with all of its
    experts, of which a process that only compiles has one token's (on one GPU all take 6.5 GB a layer)."""

    def met(drawn, between):
        seen = []

        def spied(name, fn):
            def inner(*args):
                seen.append([name, *((a.dtype, a.shape, a.stride()) if torch.is_tensor(a) else a for a in args)])
                return fn(*args)

            return inner

        stack = step.assemble(KINDS, **asked, weights=drawn)
        names = [name for unit in decode_warm.UNITS.values() for _, fields in unit for name in fields]
        plain = step.torch_ops()
        ops = dataclasses.replace(
            plain, experts=between, **{name: spied(name, getattr(plain, name)) for name in dict.fromkeys(names)}
        )
        with torch.no_grad():
            stack(ops, torch.zeros(2, 4, 1024).bfloat16(), torch.zeros(2, dtype=torch.int64))
        return seen

    asked = {**decode_point.DEFAULTS, "size": "small", "experts": experts}
    asked |= {"batch": 2, "context": 512, "max_context": 512, "device": "cpu"}
    few = met(decode_warm._weights(KINDS, asked), decode_warm._between)
    whole = met(None, step.torch_ops().experts)
    assert decode_warm._weights(KINDS, asked)[0]["experts.up"].shape[0] < step.SIZES["small"].experts
    assert few == whole and [name for name, *_ in few].count("swiglu") == 2 * len(KINDS)


class Uncaptured(buckets.Buckets):
    """Buckets whose graphs are the steps themselves."""

    spoiled = False

    def _capture(self, stack, ops, size, pool, stream):
        self.graph_bytes[size], self.capture_s[size] = (size, 2 * size), 0.1
        self._outputs[size] = {}
        self._graphs[size] = SimpleNamespace(replay=functools.partial(self._run, stack, ops, size))

    def _run(self, stack, ops, size):
        with torch.no_grad():
            found = stack(ops, self._streams[:size], self._tokens[:size])
        if self.spoiled and size == 2:
            found["1.csa.streams"] *= 1.1
        self._outputs[size] = found


@pytest.fixture
def asked(on_cpu, monkeypatch):
    monkeypatch.setattr(buckets, "Buckets", Uncaptured)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(decode_buckets, "_timed", lambda made: float)
    monkeypatch.setattr(decode_buckets, "BETWEEN", 4)
    place = {"context": 512, "max_context": 512, "step": {}}
    return {"part": "buckets", "layers": ["swa", "csa"], "sizes": [2, 5], **place}


def test_batches_of_all_sizes_while_requests_grow(asked):
    found = decode_buckets.run(context(asked, samples=2))
    assert found["status"] == "pass", found["reason"]
    two, five = found["payload"]["buckets"]
    assert (two["size"], five["size"], five["median_us"]) == (2, 5, 5.0)
    assert two["memory"] == dict.fromkeys(decode_buckets.WAYS, [2, 4]) and 0 < two["error"] <= 2e-2
    calls = {check["call"] for check in found["checks"]}
    assert {"bucket 5, batch 3, round 0", "bucket 2, batch 2, round 3"} <= calls, "padded, and at the end"
    assert found["payload"]["replays"] == 3 * 4 + 4 * 3
    shown = figures_decode.decode([recorded(found, asked)], "").text
    assert "for 2 and 5 requests in one pool, largest first" in shown and "one pool, smallest first, MiB" in shown
    assert "KV capacity" not in shown, "no layer was asked for"


def test_a_bucket_that_is_wrong_has_no_time(asked, monkeypatch):
    monkeypatch.setattr(Uncaptured, "spoiled", True)
    found = decode_buckets.run(context(asked, samples=2))
    assert found["status"] == "wrong" and "1.csa.streams is off by" in found["reason"] and "samples" not in found
    assert "Not measured: wrong. bucket 2" in figures_decode_jobs.buckets([recorded(found, asked)]).text


def test_what_compiling_a_step_takes(on_cpu, monkeypatch):
    """Breaks, graphs and recompiles are Dynamo's own counts; growing requests recompile nothing, another batch does."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    name, stack = decode_compile.COMPILED[0], step.assemble(["csa"], **decode_point.DEFAULTS, **PLACE)
    fn = decode_variants.function(stack, decode_variants.RUNGS[name])
    point = SimpleNamespace(
        functions={name: fn}, switches=decode_variants.RUNGS, stack=stack, heads=2, cache="bf16", fp8=False,
        step=decode_point.DEFAULTS,
        positions=stack.requests.positions, start=starts(4, 512), pin=lambda name: None,
        inputs=(torch.randn(4, 4, 1024).bfloat16(), torch.arange(4)),
    )  # fmt: skip
    point.checks = functools.partial(decode_point.Point.checks, point)
    found, checks = decode_compile._compiled(point, name), []
    assert (found["graphs"], found["breaks"], found["break_reasons"]) == (1, 0, [])
    assert decode_compile._grown(point, name, checks) == {"tokens": 130, "recompiled": 0}
    assert checks and all(check["ok"] for check in checks)
    second = decode_compile._second(point, name, 2)
    assert second["batch"] == 2 and second["graphs"] == 1


def test_who_compiles_side_by_side_shares_the_cores(monkeypatch):
    from torch._inductor import async_compile, config

    begun = []
    monkeypatch.setattr(decode_compile.os, "sched_getaffinity", lambda pid: set(range(16)))
    for name in ("warm_pool", "wakeup"):
        monkeypatch.setattr(async_compile.AsyncCompile, name, lambda: begun.append(config.compile_threads))
    # monkeypatch would take the setting away for good: what it finds is no attribute of its own.
    with config.patch(compile_threads=1):
        assert [decode_compile._workers(beside) for beside in (4, 1, 40)] == [4, 16, 1]
    assert begun == [4, 4, 16, 16, 1, 1]


def test_workers_end_before_a_timing(monkeypatch):
    """Whatever pool torch holds is shut down, and none is started anew by what compiles afterwards."""
    from torch._inductor import async_compile, config

    ended = []
    monkeypatch.setattr(async_compile, "_pool_set", [SimpleNamespace(shutdown=lambda: ended.append(1))])
    with config.patch(compile_threads=8):
        decode_compile._end_workers()
        assert ended == [1] and not async_compile.AsyncCompile.use_process_pool()


def test_what_is_shown_of_torch_compile():
    asked = {"part": "compile", "layer": "csa", "batch": 64, "second": 8, "context": 2048, "max_context": 4096}
    plain, overlap = decode_compile.COMPILED[0], decode_compile.COMPILED[-1]

    def record(name, timed, status="pass", **payload):
        found = {"status": status, "payload": {"first_call_s": 30.0 - 20 * timed} | payload}
        return recorded(found, asked | {"compiled": name, "timed": timed}, stage="time" if timed else "compile")

    graph = {"nodes": {"kernel": 200}, "parallel": False}
    cold = {"breaks": 0, "grown": {"tokens": 130, "recompiled": 0}, "second": {"batch": 8, "first_call_s": 12.5}}
    us = {decode_compile.PLAIN: 900.0, decode_compile.FUSED: 300.0, plain: 450.0}
    us = {name: {"median_us": value} for name, value in us.items()}
    records = [record(plain, False, graph=graph, **cold), record(plain, True, graph=graph, us=us)]
    records += [record(overlap, False, graph=graph, **cold), record(overlap, True, "timeout")]
    text = figures_decode_jobs.compiled(records).text
    for part in (
        "0 graph breaks, 0 recompiles",
        "2.00 times as fast as plain capture and 0.67 times",
        "30.0",
        "10.0",
        "12.5",
    ):
        assert part in text, part
    assert f"{overlap}: timeout in time." in text
    assert "its side streams are lost" in figures_decode_jobs.compiled(records[:3]).text
    assert figures_decode_jobs.jobs([]) is None
    assert conclusions.beside(records[:2]) == ("pass", figures_decode_jobs.said_of_compile(records[:2])[0])
    assert conclusions.beside(records)[0] == "not_run" and conclusions.beside([]) == ("skipped", "")


PLACE = {"batch": 4, "context": 512, "max_context": 1024, "device": "cuda"}


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
    seen = {"us": {"glue": 6.0}, "launches": {"glue": 3.0}, "top": [], "unmatched": 3.0}
    seen["renamed"] = [{"kernel": "a", "plain": "b", "class": "moe", "launches": 6.0}]
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
    assert (found["stock"]["unmatched"], found["stock"]["profiled"]) == (1.0, 3)
    assert found["stock"]["renamed"][0]["launches"] == 2.0
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
