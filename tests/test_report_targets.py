"""What was asked of the indexer and the glue, judged from planted points: met, missed, and what is not judged."""

import pytest

from capturebook.kernels.indexer.launch import RATIO
from capturebook.measure import targets_parts
from capturebook.params import load_preset, validate
from capturebook.report import conclusions, figures_targets, sections

H200 = {"status": "pass", "reason": "", "tuning": "pinned", "us": [1.0], "batch": 64, "gpu": "NVIDIA H200"}
H200 |= {"floor_us": None, "share": None, "tokens_per_second": 1.0}


def indexer(
    us: float, part: str = "whole", context: int = 32768, most: int = 131072, keys: str = "bf16", **more
) -> dict:
    place = {"context": context, "max_context": most, "key_format": keys, "lengths": "full", "part": part}
    variant = "bounded" if part == "whole" else f"{part} only"
    return {**H200, **place, "variant": variant, "kernel": "bounded", "median_us": us, "us": [us], **more}


def glue(us: float, kernels: int, subject: str = targets_parts.CHAIN, **more) -> dict:
    point = {"variant": "step", "kernel": "step", "context": None, "subject": subject, "kernels": kernels}
    return {**H200, **point, "median_us": us, "us": [us], **more}


def rows(*points) -> list[tuple]:
    return [(row["what"], row["target"], row["met"]) for row in targets_parts.judged(list(points))]


@pytest.mark.parametrize(
    "point, what, target, met",
    [
        (indexer(24.0, context=8192), "scores and selection", 24.0, "met"),
        (indexer(60.1), "scores and selection", 60.0, "missed"),
        (indexer(38.4, "scores", read_share=0.75), "scores alone, of the read bandwidth", 0.75, "met"),
        (indexer(38.4, "scores", read_share=0.72), "scores alone, of the read bandwidth", 0.75, "missed"),
        (indexer(130, "scores", 131072, read_share=0.85), "scores alone, of the read bandwidth", 0.75, "met"),
        (indexer(10.8, "selection"), "selection alone", 10.0, "missed"),
        (indexer(5.9, "selection", 8192), "selection alone", 10.0, "met"),
        (glue(33.7, 8), "the layer's glue", 35.0, "met"),
        (glue(11.0, 3, targets_parts.MHC), "mHC before and after a sublayer", 12.0, "met"),
        (glue(12.1, 3, targets_parts.MHC), "mHC before and after a sublayer", 12.0, "missed"),
    ],
)
def test_each_figure_beside_what_was_asked(point, what, target, met):
    assert rows(point)[0] == (what, target, met)


def test_no_more_than_eight_kernels():
    assert rows(glue(33.7, 8))[1] == ("the layer's glue", 8, "met")
    assert rows(glue(33.7, 9))[1] == ("the layer's glue", 8, "missed")
    assert len(rows(glue(11.0, 3, targets_parts.MHC))) == 1


def test_room_may_change_a_call_by_a_twentieth():
    what = ("the slower / the faster, by room", 1.05)
    assert (*what, "met") in rows(indexer(46.0), indexer(46.9, most=1048576))
    assert (*what, "met") in rows(indexer(46.9), indexer(46.0, most=1048576))
    assert (*what, "missed") in rows(indexer(49.0), indexer(46.0, most=1048576))
    assert what[0] not in {row[0] for row in rows(indexer(46.0))}, "one room says nothing of the other"


def test_fp8_is_held_to_bf16_at_the_same_point_and_the_slowest_counts():
    what = ("fp8 keys / bf16 keys", 1.0)
    short = [indexer(18.0, context=8192), indexer(17.0, keys="fp8", context=8192)]
    assert (*what, "met") in rows(indexer(46.0), indexer(37.9, keys="fp8"), *short)
    assert (*what, "missed") in rows(indexer(46.0), indexer(46.1, keys="fp8"), *short)
    (row,) = [
        row for row in targets_parts.judged([indexer(46.0), indexer(46.1, keys="fp8"), *short]) if not row["unit"]
    ]
    assert row["found"] == pytest.approx(46.1 / 46.0) and row["where"] == "the most of 2 points"
    assert rows(indexer(46.0, context=8192), indexer(37.9, keys="fp8"))[1:] == []


def test_scratch_is_four_bytes_for_each_key_that_there_is_room_for():
    what = ("scratch for each key there is room for", 4)
    right = [indexer(37.0, keys="fp8", most=1048576, scratch_a_row=1048576.0), indexer(46.0, scratch_a_row=131072.0)]
    assert rows(*right)[1:] == [(*what, "met")]
    assert rows(*right, indexer(18.0, context=8192, scratch_a_row=131073.0))[-1] == (*what, "missed")
    assert rows(indexer(37.0, keys="fp8")) == [], "not measured"
    assert targets_parts.RATIO == RATIO


@pytest.mark.parametrize(
    "other",
    [
        {"lengths": "near"},
        {"batch": 8},
        {"gpu": "NVIDIA H100"},
        {"gpu": ""},
        {"us": []},
        {"variant": "stock", "kernel": "stock"},
        {"context": 16384},
    ],
    ids=str,
)
def test_only_what_the_target_was_set_for_is_judged(other):
    assert rows(indexer(99.0) | other) == []
    assert rows(indexer(99.0, "selection", 131072)) == [], "32768 keys: asked of 8192 and fewer"
    assert rows(indexer(14.0, "scores", 8192, read_share=0.5)) == [], "asked from a context of 32768 on"
    assert rows(glue(99.0, 9, variant="twin, compile=default")) == [] == rows(glue(99.0, 9, "mine.py:build"))


def test_rows_and_sentence_say_found_asked_and_where():
    points = [indexer(10.8, "selection"), indexer(46.4), indexer(38.4, "scores", read_share=0.7249)]
    block = figures_targets.asked(points)
    said = "1 of 3 targets met (asked of the indexer and the glue on an H200, at batch 64). Missed: "
    said += "selection alone 10.8 µs (bf16 keys, context 32768 of 131072; asked: ≤ 10 µs); "
    said += "scores alone, of the read bandwidth 72.49 % (bf16 keys, context 32768 of 131072; asked: ≥ 75 %)."
    assert figures_targets.met(points) == said and block.text.startswith(said)
    assert block.html.count("missed") == 2 and "≤ 60" in block.html and "46.4" in block.html
    status, text = conclusions.sweep(points)
    assert status == "pass" and text.endswith(said)
    assert figures_targets.met([]) == "" and "can be judged here" in figures_targets.asked([]).text
    assert figures_targets.met([glue(33.7, 8)]).startswith("2 of 2 targets met")


def test_presets_measure_what_is_judged():
    """Every target has a point in a preset's run: batch, contexts, maxima, full lengths, both formats, subjects."""
    indexer = validate(load_preset("indexer"))
    assert targets_parts.BATCH in indexer.batches and "full" in indexer.options["lengths"][0]
    assert {*targets_parts.CALL_US, targets_parts.READ_FROM} <= set(indexer.contexts)
    assert set(targets_parts.ROOMS) == set(indexer.max_contexts) and set(indexer.options["key_format"]) == {
        "bf16",
        "fp8",
    }
    glues = {validate(load_preset(name)).subject: validate(load_preset(name)) for name in ("glue", "glue_mhc")}
    assert glues.keys() == targets_parts.GLUE_US.keys()
    assert all(targets_parts.BATCH in params.batches for params in glues.values())


def test_the_report_has_the_rows_only_where_there_are_targets(monkeypatch):
    def titles(points) -> str:
        monkeypatch.setattr(sections, "sweep_points", lambda records: points)
        monkeypatch.setattr(sections.figures_sweep, "sweep", lambda points: figures_targets.paragraph("figure"))
        monkeypatch.setattr(sections.figures_decode_jobs, "jobs", lambda records: [])
        return " ".join(block.text for block in sections._throughput(type("Data", (), {"records": [], "gpu": ""})))

    assert "1 target met" in titles([indexer(46.4)])
    assert titles([indexer(46.4) | {"gpu": "NVIDIA H100"}]) == "figure"
