"""The kept runs of decode step, indexer and glue on an H200: what is said of each, by hand from its records."""

import re
import statistics

import pytest

from capturebook.chain.folder import RunFolder
from capturebook.measure import decode_compile, decode_model, decode_story, targets_parts
from capturebook.measure.decode_variants import LADDER
from capturebook.measure.rows import sweep_points
from capturebook.report import (
    draw,
    figures,
    figures_decode,
    figures_decode_jobs,
    figures_decode_layers,
    figures_sweep,
    figures_targets,
    measured,
    sections,
)
from capturebook.report.run_data import RunData


def test_the_recorded_run_on_an_h200(repo):
    """Every point that was timed is right; where all rungs are, each takes less time than the one before."""
    records, torn = RunFolder.open(repo / "outputs" / "h200-decode-step").records()
    places = [r for r in records if r.kind == "sweep" and "places" in r.payload and r.status == "pass"]
    assert not torn and len(places) >= 3 and all(r.checks and all(check.ok for check in r.checks) for r in places)
    found = decode_model.whole(sweep_points(records))
    key = figures_decode.fullest(found)
    rows = {r["variant"]: r for r in found if (r["batch"], r["context"], r["max_context"]) == key}
    us = [rows[name]["us"] for name in LADDER if name in rows and name != "stock, bounded indexer"]
    assert len(us) == 7 and us == sorted(us, reverse=True) and us[0] / us[-1] > 5
    assert (
        decode_model.share(rows["mma, bounded indexer"], "glue") > 0.5 > decode_model.share(rows["stock"], "attention")
    )
    assert rows["and fused glue"]["launches"]["glue"] < rows["stock"]["launches"]["glue"] / 10


def test_what_lies_between_kernels_of_the_recorded_run(repo):
    """By hand from the records: a layer's time less its kernels', launches without a class, a rung without gain."""
    records, _ = RunFolder.open(repo / "outputs" / "h200-decode-step").records()
    points = sweep_points(records)
    asked = ("csa", "stock", 64, 2**20)
    (stock,) = [p for p in points if (p["layer"], p["variant"], p["batch"], p["max_context"]) == asked]
    gap = stock["median_us"] - sum(stock["classes"].values())
    assert figures_decode_layers.between(stock) == pytest.approx(gap) and gap == pytest.approx(187.5, abs=0.05)
    lines = [re.split(" {2,}", line) for line in figures_decode.decode(records, "NVIDIA H200").text.splitlines()]
    row = next(r for r in lines if r[:4] == ["csa", "64", "8192 of 131072", "mma, torch indexer"])
    assert row[-3:] == ["686", "5", "13059"], "15 launches of three layers were unmatched"
    told = figures_decode_layers.slower([p for p in points if p["us"]])
    assert told == [
        "1 of 90 pairs of neighbouring rungs without a gain.",
        "swa at batch 256, context 8192 of 131072: 'and overlap' 343.8 µs, 'and fused routing' 341.5, equal within the "
        "spread of the samples (336.2 to 345.3, 335.0 to 344.9).",
    ]


def test_the_recorded_run_beside_the_story(repo):
    """Gains of 43 layers and the ends by hand; the MMA kernel's, told of all concurrencies, is so at 256 alone."""
    records, _ = RunFolder.open(repo / "outputs" / "h200-decode-step").records()
    points = sweep_points(records)
    here = [p for p in points if (p["context"], p["max_context"]) == (8192, 131072)]
    layer = {(p["layer"], p["variant"], p["batch"]): p for p in here}

    def us(variant, others, batch):
        csa, hca, swa = (layer[k, v, batch] for k, v in (("csa", variant), ("hca", others), ("swa", others)))
        return 21 * csa["median_us"] + 20 * hca["median_us"] + 2 * swa["median_us"] + csa["ends_us"]

    rows = {(r["variant"], r["batch"], r["context"], r["max_context"]): r for r in decode_model.known(points)}
    assert all(row["layers"] == 43 for row in rows.values())
    found = {row["key"]: row for row in decode_story.story(list(rows.values()))}
    by_hand = us("stock", "stock", 256) / us("stock, mma", "stock, mma", 256)
    assert found["mma"]["values"]["stock", 256, 8192, 131072, 43] == pytest.approx(by_hand)
    assert by_hand == pytest.approx(2.31, abs=0.005)
    assert found["mma"]["batches"] == ((256,), (1, 8, 64)) and found["mma"]["status"] == "not reproduced"
    assert found["mma"]["measured"] == pytest.approx((1.01, 3.52), abs=0.005)
    assert [place[:2] for place in found["before"]["where"]] == [("stock", 256)]
    assert found["before"]["measured"] == pytest.approx((0.023, 0.604), abs=1e-3)
    assert ("mma, bounded indexer", 256, 8192, 131072, 43) in found["glue"]["where"]
    fused = us("mma, bounded indexer", "stock, mma", 1) / us("and fused glue", "and fused glue", 1)
    assert found["fused"]["measured"][1] == pytest.approx(fused) and fused == pytest.approx(4.23, abs=0.005)
    ((place, less, most, more, at),) = found["indexer"]["between"]
    assert place[0] == "own heads only, torch indexer" and (place[3], most) == (131072, 2**20)
    assert (less, more) == pytest.approx((5.42, 34.92), abs=0.01) and 131072 < at < 2**20
    assert ("mma, torch indexer", 64, 8192, 2**20, 43) in [place for place, _ in found["indexer"]["beyond"]]
    shown = figures_decode.decode(records, "NVIDIA H200").text
    for text in (
        "not over all concurrencies, as it is told: at 256, not at 1, 8 and 64; 'stock' at batch 64, 131072 of 131072",
        "interpolated, with torch indexer and fused glue at batch 64, 8192: between the measured maximum contexts",
        "with torch indexer and eager glue at batch 64, 8192: only above maximum context 1048576 (9.73x there), not ",
        "after another rung: 'and fused glue' at batch 64, 8192 of 131072, fused glue",
        "All 35 values",
    ):
        assert text in shown
    assert "†" not in shown
    without = [r for r in records if not (r.subject and r.subject.options.get("layer") == "swa")]
    fewer = figures_decode.decode(without, "NVIDIA H200").text
    assert "† 41 of 43 layers, sliding-window layers and ends left out" in fewer


def test_the_recorded_run_compiled(repo):
    """Of torch.compile: what it gains over each in the same process, by hand; none breaks, side streams are lost."""
    records, _ = RunFolder.open(repo / "outputs" / "h200-decode-step").records()
    jobs = [r for r in records if r.kind == "sweep" and r.subject and r.subject.options.get("part") == "compile"]
    assert len(jobs) == 7 and all(r.status == "pass" and r.payload["breaks"] == 0 for r in jobs)
    assert all(r.payload["grown"]["recompiled"] == 0 for r in jobs if not r.subject.options["timed"])
    gains = {}
    for r in (r for r in jobs if r.subject.options["timed"]):
        us = {name: statistics.median(samples) for name, samples in r.samples.items()}
        name = r.payload["compiled"]
        gains[name] = [us[other] / us[name] for other in ("own heads only, eager glue", "and own heads only")]
    expected = {
        "own heads only, whole step compiled": (3.11, 0.86),
        "own heads only, compiled glue": (2.41, 0.66),
        "own heads only, fused, whole step compiled": (5.26, 1.45),
    }
    assert {name: tuple(pair) for name, pair in gains.items()} == {
        name: pytest.approx(pair, abs=0.006) for name, pair in expected.items()
    }
    shown = figures_decode.decode(records, "NVIDIA H200").text
    assert "own heads only, whole step compiled, overlap" in shown and "its side streams are lost" in shown
    said = figures_decode_jobs.said_of_compile(records)
    assert [text.partition(": ")[0] for text in said] == [
        f"One hca layer at batch 64, context 2048 of 131072, {name}" for name in decode_compile.COMPILED
    ]
    assert "1.45 times as fast as 'and own heads only' captured, the fastest of those not compiled" in said[1]
    assert "In the 14 replays that were held to float64 no layer was off by more than 0.024" in shown
    assert "replayed 148 times" in shown and "in the 28 after which it was looked for" in shown


def test_what_ran_is_named(repo):
    """In the figure of when it ran each probe by what it was asked, and the evidence by what is there: no builds."""
    run = repo / "outputs" / "h200-decode-step"
    records, _ = RunFolder.open(run).records()
    rows = figures.timeline(records).text.splitlines()
    assert not [row for row in rows if row.startswith("sweep ")]
    for text in (
        "warm mma attention, own heads batch=64",
        "compile own heads only, whole step compiled hca batch=64 context=2048 max_context=131072 timed",
        "buckets",
        "swa batch 64, context 8192 of 131072; batch 1,",
    ):
        assert any(row.startswith(text) for row in rows), text
    (evidence,) = [s for s in sections.sections(RunData.open(run)) if s.id == "evidence"]
    assert [part.text.splitlines()[0] for part in evidence.parts[1:]] == ["Sweeps (39)"]


def test_titles_of_the_indexers_panels_fit(repo, monkeypatch):
    """None is wider than its panel: beside each other they would overlap, the last would be cut."""
    drawn = []
    monkeypatch.setattr(draw, "figure", lambda wide, *others: drawn.append(wide))
    records, _ = RunFolder.open(repo / "outputs" / "h200-indexer").records()
    figures_sweep.sweep(sweep_points(records))
    drawn[0].canvas.draw()
    panels = [axes for axes in drawn[0].axes if axes.get_visible()]
    titles = [axes.title if axes.get_title() else axes._left_title for axes in panels]
    assert len(panels) == 6
    for axes, title in zip(panels, titles):
        assert title.get_text() and title.get_window_extent().width <= axes.get_window_extent().width


@pytest.mark.parametrize(
    ("name", "which"), [("h200-sparse-mla", "context 8192, window alone, 128 tokens,"), ("h200-indexer", ", fp8 keys,")]
)
def test_the_most_tokens_a_second_say_of_which_lists_or_keys(repo, name, which):
    """The least work of several kinds gives the most tokens, which says nothing of the others."""
    said = measured.found(sweep_points(RunFolder.open(repo / "outputs" / name).records()[0]))
    assert said.startswith("Most tokens a second: ") and which in said


def median(record, variant: str) -> float:
    return statistics.median(record.samples[variant])


def test_the_recorded_indexer(repo):
    """All points are right; of what was asked at most two are missed at 32k: the scores' share of the read bandwidth,
    and the selection's time, each by less than runs differ."""
    records, torn = RunFolder.open(repo / "outputs" / "h200-indexer").records()
    points = sweep_points(records)
    assert not torn and len(points) == 72 and all(p["us"] for p in points)
    assert all(r.checks and all(check.ok for check in r.checks) for r in records if r.kind == "sweep")
    rows = targets_parts.judged(points)
    missed = [(row["what"], row["where"][:25]) for row in rows if row["met"] == "missed"]
    at = "bf16 keys, context 32768 "
    assert set(missed) <= {("scores alone, of the read bandwidth", at), ("selection alone", at)}
    assert f"{16 - len(missed)} of 16 targets met" in figures_targets.met(points)
    scores = [p for p in points if (p["key_format"], p["lengths"], p.get("part")) == ("bf16", "full", "scores")]
    found = {row["where"]: row["found"] for row in rows if row["what"].startswith("scores alone")}
    assert len(found) == 4
    for p in (p for p in scores if p["context"] >= 32768):
        keys = 64 * p["context"] // 4 * 128 * 2  # bytes: requests, keys of a context, their width, bf16
        least = keys / (statistics.median(p["us"]) * 1e-6) / 4.63e12
        share = found[f"bf16 keys, context {p['context']} of {p['max_context']}"]
        assert least < share < 1.03 * least, "what is read is keys, nearly all of it"


@pytest.mark.parametrize(
    ("name", "subject", "us", "kernels", "met"),
    [("h200-glue", "glue_chain", 35.0, 8, True), ("h200-glue-mhc", "glue", 12.0, None, True)],
)
def test_the_recorded_glue(repo, name, subject, us, kernels, met):
    """The fused step beside its target, and faster than torch.compile of the eager code, which is faster than that."""
    records, torn = RunFolder.open(repo / "outputs" / name).records()
    (record,) = (r for r in records if r.kind == "sweep")
    assert not torn and record.status == "pass" and record.payload["subject"] == f"capturebook.subjects.{subject}:build"
    fused, eager, compiled = (median(record, variant) for variant in ("step", "twin", "twin, compile=default"))
    assert (fused <= us) == met and fused < compiled / 7 < eager / 20
    assert kernels is None or record.payload["variants"]["step"]["kernels"] == kernels
    rows = targets_parts.judged(sweep_points(records))
    assert {row["met"] for row in rows} == {"met" if met else "missed"}
    assert f"{fused:.4g} µs" in figures_targets.asked(sweep_points(records)).text
