"""The indexer in the sweep: its plan, points and sizes, what is checked before it is timed, the figure."""

import html
import re
from functools import partial
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
import triton

from capturebook.kernels.indexer import formats, scores_reference
from capturebook.kernels.indexer import inputs as inputs_module
from capturebook.kernels.indexer.inputs import SHARE, Lengths, make_inputs
from capturebook.kernels.indexer.twin import best_slots
from capturebook.measure import (
    indexer_interpret,
    indexer_parts,
    indexer_sweep,
    own_sweep,
    several_places,
    sweep,
    timing,
)
from capturebook.measure.rows import place_name, sample_name, sweep_points
from capturebook.params import Params, load_preset, validate
from capturebook.params.declared import INDEXER
from capturebook.probes import ProbePool
from capturebook.records import Record
from capturebook.report import conclusions, figures_sweep
from capturebook.report.readable import unreadable
from test_measure_interpret import OLD


def places(probes) -> list[tuple]:
    return [
        (p.subject.options["key_format"], place["lengths"], place["context"], place["max_context"])
        for p in probes
        for place in p.subject.options["places"]
    ]


def test_the_preset_plans_every_format_context_and_maximum_and_shorter_lengths_once():
    probes = indexer_sweep.plan_indexer_sweep(validate(load_preset("indexer")), {})
    contexts = (8192, 32768, 131072)
    each = [("full", c, m) for m in (131072, 1048576) for c in contexts] + [("near", c, 131072) for c in contexts]
    assert places(probes) == [(key_format, *place) for key_format in ("bf16", "fp8") for place in each]
    variants = probes[0].subject.options["places"][0]["variants"]
    assert {name: (v["kernel"], v["part"]) for name, v in variants.items()} == {
        "stock": ("stock", "whole"),
        "bounded": ("bounded", "whole"),
        "scores only": ("bounded", "scores"),
        "selection only": ("bounded", "selection"),
    }
    assert all(v["tuning"] == "pinned" for v in variants.values())
    assert all(p.exclusive for p in probes) and len({p.id for p in probes}) == 2
    # names that samples and tables go by
    assert len({place_name(place) for place in probes[0].subject.options["places"]}) == 9
    assert place_name(probes[0].subject.options["places"][0]) == "batch 64, context 8192 of 131072, full lengths"


def test_options_of_the_sweep():
    def planned(**options):
        sizes = dict(batches=[2], contexts=[2048, 8192], max_contexts=[8192])
        params = Params(subject=INDEXER, kernels=["stock"], options=options, **sizes)
        return indexer_sweep.plan_indexer_sweep(params, {})

    assert places(planned()) == [("bf16", "near", 2048, 8192), ("bf16", "near", 8192, 8192)]
    assert list(planned()[0].subject.options["places"][0]["variants"]) == ["stock"], "its parts are not ours"
    assert places(planned(key_format="fp8", lengths=["full"]))[0] == ("fp8", "full", 2048, 8192)
    for name, given, allowed in (
        ("key_format", "fp4", "bf16, fp8, or a list of them"),
        ("key_format", ["bf16", "int8"], "bf16, fp8, or a list of them"),
        ("lengths", [], "near, full, or a list of them"),
        ("lengths", 7, "near, full, or a list of them"),
        ("tuning", "fast", "live, pinned"),
    ):
        with pytest.raises(ValueError, match=rf"^{re.escape(f'{name}: {given!r}; allowed: {allowed}')}$"):
            planned(**{name: given})
    assert indexer_sweep.FORMATS == formats.FORMATS and indexer_sweep.LENGTHS == get_args(Lengths) == tuple(SHARE)


def test_a_step_of_ones_own_that_takes_a_maximum_is_swept_over_it():
    params = Params(subject="own.py:build", batches=[8], contexts=[2048, 8192], max_contexts=[4096, 16384])

    def points(*takes):
        probes = own_sweep.plan_own_sweep(params, {}, list(takes), "", {})
        return [p.subject.options["build"] for p in probes]

    assert points("context") == [{"context": 2048}, {"context": 8192}]
    assert points("context", "max_context") == [
        {"context": 2048, "max_context": 4096},
        {"context": 2048, "max_context": 16384},
        {"context": 8192, "max_context": 16384},
    ]


def test_input_sets_are_cold_if_they_fit():
    l2 = 60_000_000
    # 64 rows of 2048 keys of 256 B are 33.5 MB, of which 7/8 count at least: 7 of them make 180 MB
    point = dict(batch=64, context=8192, max_context=131072, key_format="bf16", lengths="near", memory_gib=0)
    assert indexer_sweep.fit(point, l2, 140 << 30) == (7, "")
    assert indexer_sweep.fit({**point, "key_format": "fp8"}, l2, 140 << 30) == (12, "")
    assert indexer_sweep.fit({**point, "lengths": "full"}, l2, 140 << 30) == (6, "")
    large = {**point, "context": 131072, "max_context": 1 << 20}
    assert indexer_sweep.fit(large, l2, 140 << 30) == (2, "")
    sets, problem = indexer_sweep.fit({**large, "memory_gib": 1}, l2, 140 << 30)
    assert sets == 0 and problem == "needs 1.3 GiB of GPU memory, 1.0 are there"


def test_an_unknown_tuning_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^tuning: 'fast'; allowed: live, pinned$"):
        indexer_parts.prepare({"kernel": "bounded", "tuning": "fast"})


@pytest.fixture
def on_a_cpu(monkeypatch):
    """The bounded path's kernels as torch ops, memory and clock made up; what is checked, told and summed is ours."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: test_indexer_measure_gpu.py asks it")

    def scores(inputs):
        found = torch.empty(len(inputs.lengths), inputs.page_table.shape[1] * 64)
        for row, one in enumerate(scores_reference(*inputs.args())):
            found[row, : len(one)] = one.float()
        return found

    def selection(given, inputs):
        at = torch.arange(given.shape[1]) < inputs.lengths[:, None]
        return best_slots(torch.where(at, given, -torch.inf), inputs.page_table, inputs.lengths, indexer_parts.TOPK)

    def time_all(made, rounds):
        us = {"stock": 40.0, "bounded": 12.0, "scores only": 8.0, "selection only": 4.0}
        return {name: [us[name]] * rounds for name in made}

    monkeypatch.setattr(indexer_parts, "scores_of", scores)
    monkeypatch.setattr(indexer_parts, "selection_of", selection)
    monkeypatch.setattr(indexer_parts, "prepare", lambda variant, key_format: None)
    monkeypatch.setattr(inputs_module, "make_inputs", lambda *a, device, **shape: make_inputs(*a, **shape))
    for module in (indexer_sweep, several_places):
        monkeypatch.setattr(module, "foreign_processes", list)
    monkeypatch.setattr(timing, "l2_bytes", lambda: 1000)
    monkeypatch.setattr(timing, "COLD_BYTES", 1.0)
    monkeypatch.setattr(timing, "time_variants", time_all)
    monkeypatch.setattr(indexer_parts, "scratch_a_row", lambda call, batch: 4096.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 33, 1 << 33))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def swept(**changed) -> Record:
    """The record of a sweep of a small indexer: two contexts, full lengths."""
    params = Params(
        subject=INDEXER,
        kernels=["stock", "bounded"],
        options={"lengths": "full"},
        batches=[2],
        contexts=[4096, 8192],
        max_contexts=[8192],
        samples=5,
    )
    rates = {"tb_s": 1.0, "tflops": 100.0, "source": "test"}
    (probe,) = indexer_sweep.plan_indexer_sweep(params, rates)
    ctx = SimpleNamespace(probe=probe, args={**probe.args, **changed}, seed=0, fields={}, stage=lambda name: None)
    common = dict(run="r", nonce="n", kind="sweep", subject=probe.subject, started="", ended="", probe=probe.id)
    ended = indexer_sweep.run(ctx)
    return Record(**common, **{**ctx.fields, **ended})


def test_calls_scores_and_selections_are_checked_then_timed(on_a_cpu):
    record = swept()
    assert record.status == "pass", record.reason
    assert [(c.output, c.ok) for c in record.checks] == [
        ("out", True),
        ("out", True),
        ("scores", True),
        ("out", True),
    ] * 2
    points = {(p["variant"], p["context"]): p for p in sweep_points([record])}
    assert len(points) == 8 and all(p["us"] and p["gpu"] == "NVIDIA H200" for p in points.values())
    whole, scores, selection = (points[name, 8192] for name in ("bounded", "scores only", "selection only"))
    keys = 2 * 2048
    # keys, page numbers, and of each request q, weights and length
    read = keys * 256 + keys // 64 * 4 + 2 * (64 * 128 * 2 + 64 * 4 + 4)
    assert scores["read"] == read and scores["read_share"] == pytest.approx(read / 8e-6 / 1e12)
    assert scores["bytes"] == read + 4 * keys and whole["bytes"] == read + 2 * 512 * 4
    assert selection["bytes"] == 4 * keys + 2 * (512 * 8 + 4) and selection["flops"] == 0
    assert (whole["scratch_a_row"], whole["tokens_per_second"]) == (4096.0, pytest.approx(2 / 12e-6))
    assert scores["tokens_per_second"] is selection["tokens_per_second"] is None
    assert "scratch_a_row" not in scores and "read_share" not in whole and not unreadable(record)
    assert "with bounded, batch 2, context 4096 of 8192" in figures_sweep.sweep(list(points.values())).html


@pytest.mark.parametrize(
    "part, spoil, told",
    [
        ("scores_of", lambda found, inputs: found * 1.001, "scores only"),
        (
            "scores_of",
            lambda found, inputs: found.masked_fill(torch.arange(found.shape[1]) == 5, torch.nan),
            "scores only",
        ),
        ("selection_of", lambda found, inputs: found.roll(1, 0), "selection only"),
    ],
    ids=["scores off", "a score not written", "slots of another request"],
)
def test_a_part_that_is_wrong_leaves_its_place_without_times(on_a_cpu, monkeypatch, part, spoil, told):
    right = getattr(indexer_parts, part)
    monkeypatch.setattr(indexer_parts, part, lambda *given: spoil(right(*given), given[-1]))
    record = swept()
    assert record.status == "wrong" and f"{told}: " in record.reason and "bounded" not in record.reason
    assert not record.samples and not any(p["us"] for p in sweep_points([record]))


def test_a_selection_is_held_exactly_to_the_scores_it_was_given(on_a_cpu):
    """Whole calls may take either of two keys that all but tie; of given scores the best 512 are known."""
    inputs = make_inputs(0, 2, 4096, 8192, lengths="full")
    scores = indexer_parts.scores_of(inputs)
    best = scores[0, :1024].topk(513).indices
    scores[0, best[512]] = scores[0, best[511]] - 1e-6 * scores[0, :1024].abs().max()
    chosen = indexer_parts.selection_of(scores, inputs)
    last, next_one = (inputs.page_table[0, at // 64] * 64 + at % 64 for at in (best[511], best[512]))
    chosen[0, chosen[0] == last] = next_one.int()
    check = indexer_parts.verify(
        "one", "selection", partial(lambda given, one: chosen, scores, inputs), inputs, [scores[0, :1024]] * 2
    )
    assert not check["ok"] and 0 < check["error"] < 1e-5


def test_scratch_is_what_was_asked_for_at_the_most_less_the_result(monkeypatch):
    asked = {"requested_bytes.all.current": 1000, "requested_bytes.all.peak": 9000}

    def call():
        asked["requested_bytes.all.peak"] = 1000 + 4 * 4096 + 4 * 2048
        return torch.empty(4, 512, dtype=torch.int32)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: asked.update({"requested_bytes.all.peak": 1000}))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: dict(asked))
    assert indexer_parts.scratch_a_row(call, 4) == 4096


def test_places_that_do_not_fit_are_skipped_with_their_reason(on_a_cpu):
    record = swept(memory_gib=0.0001)
    assert record.status == "skipped" and record.reason.startswith("needs 0.0 GiB of GPU memory")
    assert {p["status"] for p in sweep_points([record])} == {"skipped"}


def timed(probe) -> Record:
    """A record of the probe in which stock takes 1 us a 1024 tokens of room, bounded 1 us a 1024 of context."""
    asked, payload, samples = probe.subject.options, {"gpu": "NVIDIA H200", "places": {}}, {}
    payload |= {"method": indexer_sweep.METHOD, "tokens_per_second_means": indexer_sweep.TOKENS}
    payload |= {"key_format": asked["key_format"]}
    for place in asked["places"]:
        found = {"bytes": 1000, "flops": 1000, "floor_us": 0.5, "floor_bound": "bytes", "floor_source": "test"}
        us = {name: place["context"] / 1024 for name in place["variants"]} | {"stock": place["max_context"] / 1024}
        found["variants"] = {
            name: {**variant, **sweep.speed([us[name]] * 3, {"batch": 64, **found})}
            for name, variant in place["variants"].items()
        }
        payload["places"][place_name(place)] = found
        samples |= {sample_name(place, name): [value] * 3 for name, value in us.items()}
    common = dict(run="r", nonce="n", kind="sweep", subject=probe.subject, started="", ended="")
    return Record(probe=probe.id, status="pass", samples=samples, payload=payload, **common)


def test_the_figure_has_context_below_and_a_panel_for_each_format_lengths_and_maximum():
    params = validate(load_preset("indexer"))
    params = params.model_copy(update={"options": params.options | {"key_format": "fp8"}})
    points = sweep_points([timed(probe) for probe in indexer_sweep.plan_indexer_sweep(params, {})])
    assert len(points) == 9 * 4
    shown = figures_sweep.sweep(points)
    alt = html.unescape(re.search(r'alt="([^"]*)"', shown.html)[1])
    assert alt.startswith("Time over context for stock, bounded, scores only, selection only, one panel for each of: ")
    for panel in (
        "fp8 keys, full lengths, batch 64, room for 131,072; fp8 keys, full lengths, batch 64, room for 1,048,576; ",
        "fp8 keys, near lengths, batch 64, room for 131,072. ",
    ):
        assert panel in alt
    assert "One indexer call" in shown.html and "8192 of 1048576" in shown.text
    status, text = conclusions.sweep(points)
    assert status == "pass" and "at batch 64, context 8192 of 131072" in text


@pytest.mark.parametrize(
    "name, value", [("median_us", 0.0), ("scratch_a_row", "much"), ("read_share", [1]), ("max_context", 0)]
)
def test_a_record_that_the_targets_could_not_read_is_set_aside(name, value):
    params = Params(subject=INDEXER, kernels=["bounded"], batches=[64], contexts=[8192])
    record = timed(indexer_sweep.plan_indexer_sweep(params, {})[0])
    assert not unreadable(record)
    (found,) = record.payload["places"].values()
    (found if name == "max_context" else found["variants"]["bounded"])[name] = value
    assert name in unreadable(record)


@pytest.mark.skipif(OLD, reason=f"the interpreter of triton {triton.__version__} cannot loop with numpy >= 2.4")
def test_interpreted_kernels_agree_with_float64(tmp_path):
    run = SimpleNamespace(path=tmp_path, name="test", nonce="f00d", append=lambda record: None)
    with ProbePool(run, on_event=lambda text: None) as pool:
        records = pool.run(indexer_interpret.plan_indexer_interpret(["bounded"]))
    assert [(r.status, r.reason) for r in records] == [("pass", "")] * 2
    assert [[check.output for check in r.checks] for r in records] == [["scores", "selection"]] * 2
    assert all(0 < r.payload["error"] < 1e-6 for r in records)


def test_an_interpreted_kernel_that_is_wrong_is_wrong(monkeypatch):
    from capturebook.kernels.indexer import interpret as theirs
    from capturebook.kernels.indexer import select

    def without_relu(kernel, tensors, topk):
        q, weights, keys, table, lengths = tensors
        rows = keys[table.long()].flatten(1, 2).float()
        return torch.einsum("bhd,btd,bh->bt", q.float(), rows, weights), select(*tensors, topk=topk)

    monkeypatch.setattr(theirs, "interpret", without_relu)
    probe = indexer_interpret.plan_indexer_interpret(["bounded"])[0]
    result = indexer_interpret.run(SimpleNamespace(probe=probe, seed=0, stage=lambda name: None))
    assert result["status"] == "wrong" and result["reason"].startswith("bounded differs from float64: scores ")
    assert [check["ok"] for check in result["checks"]] == [False, True]
