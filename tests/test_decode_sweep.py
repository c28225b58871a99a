"""The decode step's sweep without a GPU: rungs, plan, classes of a trace."""

from types import SimpleNamespace

import pytest
import torch

from capturebook.chain import parts
from capturebook.measure import decode_compile, decode_model, decode_plan, decode_story, decode_warm
from capturebook.measure.decode_variants import LADDER, RUNGS, STOCK, Switches, function
from capturebook.measure.kernel_classes import CLASSES, labelled, launched, part, parted, profile, times
from capturebook.measure.rows import place_name
from capturebook.params import load_preset, validate
from capturebook.records import Record
from capturebook.report import figures_decode, figures_decode_layers
from capturebook.subjects.decode_step.ops import GLUE
from capturebook.subjects.decode_step.step import TOLERANCE, assemble


@pytest.fixture(scope="module")
def stack():
    kinds = ["csa", "hca"]
    return assemble(kinds, "small", 8, "score", "bf16", "bf16", "bf16", 2, 512, 1024, "cpu")


def test_every_rung_is_the_same_step(stack):
    """On a CPU all kernels are torch ops, so rungs without lanes give the same streams, but for roundings."""
    inputs = torch.randn(2, 4, 1024, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.tensor([1, 2])
    found = {}
    for name, switches in RUNGS.items():
        if switches.overlap or switches.whole or switches.glue == "compiled":
            continue
        stack.requests.positions.copy_(torch.tensor([255, 300]))
        with torch.no_grad():
            found[name] = function(stack, switches)(*inputs)["1.hca.streams"].float()
    for streams in found.values():
        assert (streams - found["stock"]).abs().max() <= TOLERANCE * found["stock"].abs().max()
    assert len(set(RUNGS.values())) == len(RUNGS)


def test_labels_change_nothing_and_are_seen_in_a_trace(stack):
    inputs = torch.randn(2, 4, 1024, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.tensor([1, 2])
    results, events = [], []
    for label in (None, labelled):
        stack.requests.positions.copy_(torch.tensor([255, 300]))
        step = function(stack, STOCK, label)
        with torch.no_grad():
            events = profile(lambda step=step: results.append(step(*inputs)["1.hca.streams"]))
    assert torch.equal(*results)
    names = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert names.count("class:attention") == 2 and names.count("class:indexer") == 1 and names.count("class:moe") == 4
    assert names.count("class:routing") == 2 and names.count("class:glue") >= 12


def traced(*work, ranges=()):
    """A Chrome trace: (kernel, launched at, us of GPU time) and (class, from, to)."""
    events = [
        {"cat": "user_annotation", "name": f"class:{name}", "ts": start, "dur": end - start, "tid": 1}
        for name, start, end in ranges
    ]
    for number, (kernel, ts, us) in enumerate(work):
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": 1, "tid": 1}
        events.append(launch | {"args": {"correlation": number}})
        gpu = {"cat": "kernel", "name": kernel, "ts": 1000 + ts, "dur": us, "args": {"correlation": number}}
        events.append(gpu)
    return events


def test_kernels_belong_to_the_innermost_range():
    work = [("nvjet_tst_64x8", 1, 5.0), ("elementwise", 8, 1.0), ("mma_kernel", 11, 7.0), ("silu", 22, 2.0)]
    ranges = [("attention", 10, 12), ("moe", 20, 30), ("glue", 21, 23)]
    order = launched(traced(*work, ranges=ranges)[::-1])
    assert order == [
        ("nvjet_tst_64x8", "gemm"),
        ("elementwise", "glue"),
        ("mma_kernel", "attention"),
        ("silu", "glue"),
    ]
    found = times([traced(*work)], order)
    assert found["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 7.0, "gemm": 5.0, "glue": 3.0}
    assert found["launches"] == dict.fromkeys(CLASSES, 0) | {"attention": 1, "gemm": 1, "glue": 2}
    assert found["top"][0] == {"kernel": "mma_kernel", "class": "attention", "us": 7.0}
    assert found["others"] == []
    # another order, and a kernel that starts while the one before it runs: only what is behind that counts
    early = [("mma_kernel", 1, 9.0), ("silu", 4, 8.0), ("nvjet_tst_64x8", 20, 3.0), ("elementwise", 30, 1.0)]
    found = times([traced(*early)], order)
    assert found["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 9.0, "gemm": 3.0, "glue": 3.0}
    assert found["others"] == []


def test_the_mean_of_several_replays():
    """What only some replays do at length counts by its part: an entry that closes a window, one token in 128."""
    order = [("mma_kernel", "attention"), ("compress", "glue")]
    short, long = (traced(("mma_kernel", 1, 4.0), ("compress", 8, us)) for us in (1.0, 21.0))
    found = times([short, short, short, long], order)
    assert found["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 4.0, "glue": 6.0}
    assert found["launches"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 1.0, "glue": 1.0}
    assert found["top"][0] == {"kernel": "compress", "class": "glue", "us": 6.0}


def test_launches_that_a_replay_names_otherwise():
    """As many as are left of the plain run are these, in their order; more or fewer go by their own names."""
    order = [("set", "moe"), ("mma_kernel", "attention"), ("set", "indexer"), ("silu", "glue")]
    work = [("unknown set", 1, 1.0), ("mma_kernel", 11, 7.0), ("unknown set", 22, 2.0), ("silu", 30, 4.0)]
    found = times([traced(*work)] * 2, order)
    assert found["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 7.0, "moe": 1.0, "indexer": 2.0, "glue": 4.0}
    assert found["others"] == [
        {"kernel": "unknown set", "plain": "set", "class": group, "launches": 1.0} for group in ("moe", "indexer")
    ]
    found = times([traced(*work, ("nvjet_other", 50, 3.0))], order)
    assert found["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 7.0, "gemm": 3.0, "glue": 7.0}
    unknown = [("unknown set", "glue", 2.0), ("nvjet_other", "gemm", 1.0)]
    assert [(one["kernel"], one["class"], one["launches"]) for one in found["others"]] == unknown
    assert all(one["plain"] is None for one in found["others"])


def test_one_profile_of_several_steps(stack):
    """Each part's events are those of its own: what two steps launch side by side in one trace is told apart."""
    work = [("mma_kernel", 11, 7.0), ("silu", 22, 2.0), ("copy", 35, 1.0), ("mma_kernel", 41, 6.0), ("silu", 52, 3.0)]
    events = traced(*work, ranges=[("attention", 10, 12), ("attention", 40, 42)])
    for name, start, end in (("a: plain", 5, 30), ("a: replay", 38, 60)):
        span = {"cat": "user_annotation", "name": f"part:{name}", "ts": start, "dur": end - start, "tid": 1}
        events.append(span)
    found = parted(events)
    order = launched(found["a: plain"])
    assert order == [("mma_kernel", "attention"), ("silu", "glue")]
    seen = times([found["a: replay"]], order)
    assert seen["us"] == dict.fromkeys(CLASSES, 0.0) | {"attention": 6.0, "glue": 3.0} and not seen["others"]
    inputs = torch.randn(2, 4, 1024, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.tensor([1, 2])

    def run():
        for name in ("first", "second"):
            with part(name), torch.no_grad():
                function(stack, STOCK, labelled)(*inputs)

    parts = parted(profile(run))
    names = [[e["name"] for e in of if e.get("cat") == "user_annotation"] for of in parts.values()]
    assert list(parts) == ["first", "second"] and names[0] == names[1] and names[0].count("class:attention") == 2


def planned(**given):
    params = validate(load_preset("decode_step") | given)
    return decode_plan.plan_decode(params, params.options)


def parts_of(probes):
    return [probe.subject.options.get("part", "point") for probe in probes]


def test_all_rungs_at_one_place_and_the_ends_everywhere():
    points = [probe.subject.options for probe in planned() if "places" in probe.subject.options]
    assert [a["layer"] for a in points[:3]] == ["csa", "hca", "swa"]
    assert (points[-1]["layer"], points[-1]["step"]["routing"]) == ("swa", "hash"), "apart, by token"
    assert [len(p["variants"]) for p in points.pop()["places"]] == [3]
    (key,) = points[0]["places"]
    assert set(key["variants"]) >= set(LADDER) and place_name(key) == "batch 64, context 8192 of 131072"
    bare = {decode_model.without_indexer(name) for name in key["variants"]}
    for a in points[1:3]:
        names = list(a["places"][0]["variants"])
        assert len(names) == len(bare) < len(key["variants"]), "each variant once, where there is no indexer"
        assert {decode_model.without_indexer(name) for name in names} == bare
    at = [(a["layer"], p["batch"], p["context"], p["max_context"]) for a in points for p in a["places"]]
    assert len(set(at)) == len(at)
    for batch in (1, 8, 64, 256):
        for context in (2048, 8192, 32768, 131072):
            assert {("csa", batch, context, 131072), ("hca", batch, context, 131072)} <= set(at)
        assert ("swa", batch, 8192, 131072) in at and ("swa", batch, 2048, 131072) not in at
    looked = {(p["batch"], p["context"]) for a in points for p in a["places"] if p["profile"]}
    assert looked == {(batch, context) for batch in (1, 8, 64, 256) for context in (8192, 131072)}
    story = {rung for pair in decode_story.INDEXER for rung in pair} | {decode_story.STOCK, decode_story.MMA}
    far = next(p for a in points for p in a["places"] if p["max_context"] == 2**20)
    assert story <= set(far["variants"]), "the indexer's gain is told of a maximum context"
    assert all({"stock", "stock, mma", "and overlap"} <= set(p["variants"]) for a in points for p in a["places"])


def test_compilations_come_first_and_side_by_side():
    probes = planned(batches=[8, 64])
    first = [probe.exclusive for probe in probes].index(True)
    assert not any(probe.exclusive for probe in probes[:first]) and all(probe.exclusive for probe in probes[first:])
    assert parts_of(probes)[:first] == ["compile"] * 5 + ["warm"] * 2 * len(decode_warm.UNITS)
    assert min(p.deadline for p in probes[:4]) >= 1.5 * 58.4, "what the slowest took on an H200"
    timed = parts_of(probes)[first:]
    assert timed[:4] == ["point"] * 3 + ["buckets"]
    assert timed[-7:] == ["compile"] * 3 + ["point"] * 3 + ["compile"], "what may take longest is last"
    for compiled in (probes[4], probes[-1]):
        asked = compiled.subject.options
        assert asked["layer"] == "csa" and asked["compiled"] == decode_compile.SECOND and asked["second"] is None
    assert {probe.subject.options["layer"] for probe in probes[:4]} == {"hca"}
    assert len({probe.id for probe in probes}) == len(probes)
    switches = set(Switches.__dataclass_fields__)
    fields = [field for unit in decode_warm.UNITS.values() for _, found in unit for field in found]
    assert all(set(given) <= switches for unit in decode_warm.UNITS.values() for given, _ in unit)
    assert set(fields) == {*GLUE, "attend", "select", "route", "combine"}, "what Triton has a part in"


@pytest.mark.parametrize("status", ["skipped", "not_run", "timeout"])
def test_what_is_shown_where_nothing_was_timed(status):
    """Records of probes that never ran, or not to their end, have no payload: they say only what was asked for."""
    when = {"started": "2026-11-30T12:00:00.000+00:00", "ended": "2026-11-30T12:00:01.000+00:00"}
    records = [
        Record(run="r", probe=p.id, nonce="n", kind=p.kind, subject=p.subject, status=status, reason="so it is", **when)
        for p in planned()
    ]
    shown = figures_decode.decode(records, "NVIDIA H200").text
    assert figures_decode_layers.NOT_HERE in shown and "one rank of eight" in shown and "so it is" in shown


def test_the_notebooks_sweep_is_the_plan():
    """`parts.sweep` of the decode step asks for the plan, and nothing is described or built for it, no floor either."""
    params = validate(load_preset("decode_step") | {"batches": [8], "contexts": [2048]})
    asked = []

    def outcomes(probes, before):
        asked.extend(probes)
        assert [p.id for p in probes[: len(before)]] == [p.id for p in before] and not before[0].exclusive
        return []

    parts.sweep(SimpleNamespace(params=params, outcomes=outcomes))
    assert [probe.id for probe in asked] == [p.id for p in decode_plan.plan_decode(params, params.options)]
    steps = [probe.subject.options["step"] for probe in asked]
    assert all(step | {"routing": "hash"} == {"tp": 8, "experts": "fp8", "routing": "hash"} for step in steps)
    assert [step.get("routing") for step in steps].count("hash") == 1
