"""The jobs beside the decode step's sweep, on a CPU: kernels compiled beforehand, batch buckets, torch.compile.

CUDA has stand-ins: a bucket's graph is the step itself, and Dynamo's backend runs what it traced as it is.
"""

import dataclasses
import functools
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure import (
    decode_buckets,
    decode_compile,
    decode_point,
    decode_variants,
    decode_warm,
)
from capturebook.report import conclusions, figures_decode, figures_decode_jobs
from capturebook.subjects.decode_step import buckets, step
from capturebook.subjects.decode_step.step import assemble, starts
from decode_cases import context, recorded

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
    judged = {check["call"] for check in found["checks"] if check["output"] == "1.csa.streams"}
    assert len(judged) == 12 and "In the 12 replays that were held to float64 no layer" in shown
    assert "They were replayed 24 times" in shown
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
    us = {decode_compile.PLAIN: 900.0, "and own heads only": 300.0, "and overlap": 270.0, plain: 450.0}
    us = {name: {"median_us": value} for name, value in us.items()}
    records = [record(plain, False, graph=graph, **cold), record(plain, True, graph=graph, us=us)]
    records += [record(overlap, False, graph=graph, **cold), record(overlap, True, "timeout")]
    text = figures_decode_jobs.compiled(records).text
    for part in (
        "0 graph breaks, 0 recompiles",
        f"One csa layer at batch 64, context 2048 of 4096, {plain}: 0 graph",
        "2.00 times as fast as 'own heads only, eager glue' captured, 0.67 times as fast as 'and own heads only' "
        "captured and 0.60 times as fast as 'and overlap' captured, the fastest of those not compiled",
        "0.60x ('and overlap')",
        "30.0",
        "10.0",
        "12.5",
    ):
        assert part in text, part
    assert f"{overlap}: timeout in time." in text
    of_hca = recorded(
        {"status": "timeout"}, asked | {"layer": "hca", "compiled": plain, "timed": False}, stage="compile"
    )
    both = figures_decode_jobs.said_of_compile(records)
    assert figures_decode_jobs.said_of_compile([*records[::-1], of_hca])[:2] == both, "whatever the order of records"
    assert "One hca layer" in figures_decode_jobs.said_of_compile([of_hca, *records])[2]
    assert "its side streams are lost" in figures_decode_jobs.compiled(records[:3]).text
    assert figures_decode_jobs.jobs([]) is None
    assert conclusions.beside(records[:2]) == ("pass", figures_decode_jobs.said_of_compile(records[:2])[0])
    assert conclusions.beside(records)[0] == "not_run" and conclusions.beside([]) == ("skipped", "")


PLACE = {"batch": 4, "context": 512, "max_context": 1024, "device": "cuda"}
