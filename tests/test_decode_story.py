"""From timed layers to the model: extrapolation, the story's arithmetic, what is shown and concluded of both."""

import pytest

from capturebook.measure import amdahl, decode_model, decode_point, decode_story
from capturebook.measure.decode_variants import LADDER, RUNGS
from capturebook.measure.kernel_classes import CLASSES
from capturebook.report import conclusions, figures_decode, figures_decode_layers, figures_sweep
from capturebook.subjects.decode_step.shapes import SIZES
from decode_cases import timed


def test_a_layer_without_context_stands_for_all_contexts():
    points = [timed("stock", "csa", 10.0), timed("stock", "hca", 5.0), timed("stock", "swa", 1.0)]
    far = [{**point, "context": 32768} for point in points[:2]]
    near, other = decode_model.whole([*points, *far])
    assert near["us"] == other["us"] and other["context"] == 32768
    assert decode_model.whole([*far, timed("stock", "swa", 1.0, batch=8)]) == [], "of another batch it is not"


def test_the_whole_model_from_its_layers():
    points = [timed("stock", kind, us, attention=us / 2, glue=us / 2) for kind, us in (("swa", 1.0), ("csa", 10.0))]
    assert decode_model.whole(points) == [], "no layer of the third kind"
    (row,) = decode_model.whole([*points, timed("stock", "hca", 100.0, attention=100.0)])
    assert row["us"] == 2 + 210 + 2000 + 5 and row["tokens_per_second"] == pytest.approx(64e6 / row["us"])
    assert row["classes"]["attention"] == 1 + 105 + 2000 and row["launches"]["gemm"] == 86
    assert decode_model.share(row, "attention") == pytest.approx(2106 / 2212)
    (row,) = decode_model.whole([timed("and overlap", kind, 1.0) for kind in ("swa", "csa", "hca")])
    assert row["classes"] is None and decode_model.share(row, "glue") is None


def test_the_compressed_layers_stand_for_the_model_where_no_other_was_timed():
    """41 of 43 layers and no ends, and never compared with all of them."""
    points = [timed("stock", kind, us, 8, attention=us) for kind, us in (("csa", 10.0), ("hca", 100.0))]
    points += [timed("and overlap", kind, 1.0, 8) for kind in ("csa", "hca")]
    points += [timed("stock", kind, 1.0) for kind in decode_model.LAYERS]
    rows = decode_model.known(points)
    assert [(row["batch"], row["layers"], row["us"]) for row in rows] == [(64, 43, 48), (8, 41, 2210), (8, 41, 41)]
    assert rows[1]["classes"]["attention"] == 2210 and rows[1]["ends_us"] == 0
    assert [(row["batch"], row["us"]) for row in decode_model.alike(points)] == [(8, 2210), (8, 41), (64, 41)]
    full = [*points, timed("stock", "swa", 5.0, 8)]
    assert (
        [row["layers"] for row in decode_model.alike(full)]
        == [43, 43]
        == [row["layers"] for row in decode_model.known(full)]
    ), "a rung that lacks a layer is left out beside one that has all"


def test_a_layer_without_indexer_is_the_same_whichever_it_has():
    points = [timed(name, "csa", us) for name, us in (("stock, mma", 10.0), ("mma, bounded indexer", 4.0))]
    points += [timed("stock, mma", "hca", 5.0), timed("stock, mma", "swa", 1.0), timed("stock", "hca", 50.0)]
    mma, both = decode_model.whole(points)
    assert (mma["us"], both["us"]) == (2 + 210 + 100 + 5, 2 + 84 + 100 + 5)


def test_a_layer_that_is_routed_by_token_stands_for_no_other():
    """Neither in the model nor as the first rung or the one before of its place."""
    points = [timed("stock", kind, 10.0) for kind in decode_model.LAYERS]
    hashed = timed("stock", "swa", 99.0) | {"step": {"routing": "hash"}}
    assert decode_model.whole([hashed, *points]) == decode_model.whole(points)
    assert decode_model.whole([hashed, *points[1:]]) == [], "the layer of the window alone is by token"
    more = [timed("and overlap", "swa", 5.0), timed("and overlap", "swa", 33.0) | {"step": {"routing": "hash"}}]
    shown = figures_decode_layers.layers(
        [p | {"tokens_per_second": 1.0} | {"step": {}} | p for p in [hashed, *points, *more]]
    )
    assert ["2.00x", "3.00x"] == [line.split()[-2] for line in _lines(shown) if "and overlap" in line]
    assert "swa, hash routing" in shown.text and "in all 2 pairs" in shown.text


def test_the_story_beside_what_was_measured():
    def rung(variant, us, batch, attention, glue, kinds=("swa", "csa", "hca")):
        return [timed(variant, kind, us, batch, attention=attention, glue=glue) for kind in kinds]

    points = rung("stock", 100.0, 64, 57.0, 40.0) + rung("stock, mma", 40.0, 64, 4.0, 36.0)
    points += rung("mma, bounded indexer", 39.0, 64, 8.0, 28.0)
    points += rung("stock", 100.0, 1, 90.0, 1.0, ("csa", "hca")) + rung(
        "stock, mma", 90.0, 1, 90.0, 1.0, ("csa", "hca")
    )
    points += rung("and fused glue", 20.0, 64, 10.0, 90.0)
    found = {row["key"]: row for row in decode_story.story(decode_model.known(points))}
    gain = found["mma"]
    assert gain["status"] == "not reproduced" and gain["where"] == [("stock", 64, 8192, 131072, 43)]
    assert gain["batches"] == ((64,), (1,)), "what is told over all concurrencies is not so at one of them"
    assert gain["measured"] == pytest.approx((100 / 90, 4305 / 1725))
    assert gain["ends"][0] == ("stock", 1, 8192, 131072, 41)
    assert found["indexer"]["status"] == "not reproduced"
    assert found["before"]["where"] == [("stock", 64, 8192, 131072, 43)]
    assert found["after"]["status"] == "reproduced"
    assert found["after"]["elsewhere"] == [("and fused glue", 64, 8192, 131072, 43)]
    of_one_indexer = 5 + 21 * 39 + 22 * 40  # layers without one are the same with "stock, mma", which is first
    assert found["fused"]["status"] == "reproduced"
    assert found["fused"]["measured"] == pytest.approx((of_one_indexer / 865,) * 2)
    (row,) = [r for r in decode_story.story([]) if r["key"] == "mma"]
    assert row["status"] == "not measured" and not row["where"]
    assert {rung for pair in decode_story.INDEXER for rung in pair} <= set(RUNGS)


def test_all_concurrencies_are_those_of_one_context():
    """A gain at every batch of one maximum context is reproduced there, whatever it is at another."""
    points = []
    for batch, most, before in ((1, 131072, 25.0), (64, 131072, 27.0), (64, 2**20, 11.0)):
        for kind in ("csa", "hca"):
            points += [timed("stock", kind, before, batch), timed("stock, mma", kind, 10.0, batch)]
            points[-2]["max_context"] = points[-1]["max_context"] = most
    gain = decode_story.story(decode_model.known(points))[0]
    assert gain["status"] == "reproduced" and gain["batches"] == ((1, 64), ())
    assert [place[1:4] for place in gain["where"]] == [(1, 8192, 131072), (64, 8192, 131072)]


def test_between_measured_maximum_contexts():
    def gains(*of):
        return {("mma, torch indexer", 64, 8192, most, 43): gain for most, gain in of}

    found = decode_story.crossings(gains((1000, 5.0), (2000, 25.0)), 17.0)
    place = ("mma, torch indexer", 64, 8192, 1000, 43)
    assert found == {"between": [(place, 5.0, 2000, 25.0, pytest.approx(1600))], "beyond": []}
    found = decode_story.crossings(gains((1000, 2.0), (2000, 10.0)), 17.0)
    assert found == {"between": [], "beyond": [((*place[:3], 2000, 43), 10.0)]}
    for met in (gains((1000, 5.0), (2000, 18.0)), gains((1000, 10.0), (2000, 2.0)), gains((1000, 10.0))):
        assert decode_story.crossings(met, 17.0) == {"between": [], "beyond": []}, "met, or ever farther, or one point"


def test_the_story_by_amdahl():
    assert amdahl.gain(0.5, 2) == pytest.approx(4 / 3) and amdahl.gain(1, 4) == 4
    assert amdahl.gain(0.57, float("inf")) == pytest.approx(1 / 0.43)
    assert amdahl.share_needed(17) == pytest.approx(16 / 17)
    factor = amdahl.factor_of(0.57, 0.10)
    assert 0.57 / factor / (0.43 + 0.57 / factor) == pytest.approx(0.10)
    assert [v["status"] for v in amdahl.verdicts()] == ["inconsistent with itself"] * 3 + ["possible"] * 2
    fine = {"mma": (1.5, 2.0), "indexer": 1.5, "attention": (0.6, 0.2), "glue": 0.9, "fused": 3.0}
    assert [v["status"] for v in amdahl.verdicts(fine)] == ["possible"] * 4 + ["inconsistent with itself"]
    for share, factor in ((1.1, 2), (0.5, 0)):
        with pytest.raises(ValueError, match="allowed: "):
            amdahl.gain(share, factor)
    assert set(CLASSES) >= {"attention", "indexer", "glue"}


def test_what_is_shown_of_it(monkeypatch):
    points = []
    for batch in (1, 64):
        for number, name in enumerate(LADDER):
            for kind, us in (("swa", 300.0), ("csa", 900.0), ("hca", 500.0)):
                classes = {} if name == "and overlap" else {"attention": us / 2, "gemm": us / 4, "glue": us / 4}
                points.append(timed(name, kind, us / (number + 1), batch, **classes))
    extra = {
        "tokens_per_second": 1.0,
        "nodes": 10.0,
        "called_us": 4321.0,
        "step": decode_point.DEFAULTS,
        "status": "pass",
        "reason": "",
    }
    points = [point | extra for point in points]
    monkeypatch.setattr(figures_decode, "sweep_points", lambda records: records)  # points are made above
    monkeypatch.setattr(figures_decode, "jobs", lambda records: None)
    shown = figures_decode.decode(points, "NVIDIA H200")
    for text in (
        "one rank of eight",
        "stock, mma",
        "2.00x",
        "inconsistent with itself",
        "not reproduced on an H200",
        "KV capacity",
        "inconsistent with itself: the indexer's gain",
        "('stock' at batch 1, 8192 of 131072)",
        "8 GPUs, memory fraction 0.9, beside the story's 2.58 million",
        "Tokens a second of one rank of eight over concurrency",
        "All 48 rows",
        "Uncaptured µs",
        "4321",
        "430 to 430",
    ):
        assert text in shown.text, text
    assert shown.html.count("<figure>") == 2 and "layer of each kind of 2 + 21 + 20" in shown.html
    assert "41 of 43" not in shown.text and "embedding and head not among them" in shown.text
    assert "see there" in figures_sweep.sweep(points).text, "which has a panel for each context and layer"
    skipped = [{**point, "us": [], "status": "skipped", "reason": "no GPU"} for point in points]
    assert figures_decode_layers.NOT_HERE in figures_decode.decode(skipped, "").text
    assert "Another subject" in figures_decode.decode([{"variant": "mma", "us": [1.0]}], "").text


def test_time_that_no_kernel_fills():
    """Bars are of kernels alone; the whole model's gap is that of its layers, the ends apart."""
    points = [timed("stock", kind, 10.0, attention=6.0, glue=3.0) for kind in decode_model.LAYERS]
    assert figures_decode_layers.between(points[0]) == 1.0
    assert figures_decode_layers.between(timed("and overlap", "csa", 10.0)) is None
    (row,) = decode_model.whole(points)
    assert row["us"] == 435 and figures_decode_layers.between(row) == 43
    points = [p | {"tokens_per_second": 1.0, "step": {}} for p in points]
    shown = figures_decode.model(points)
    assert "shorter than the time by what lies between kernels, 10 % of it, and by embedding" in shown.html
    assert "Between kernels, ms" in shown.text and any(line.split()[-2:] == ["0.04", "516"] for line in _lines(shown))
    found = figures_decode_layers.layers(points)
    assert any(line.split()[-3:] == ["1.0", "12", "0"] for line in _lines(found)), "gap, launches, unmatched"
    assert "requests hold 7/8 of the context that is named, and more" in found.text


def _lines(block):
    return block.text.splitlines()


def test_launches_without_a_class_and_calls_from_python_are_shown():
    point = timed("stock", "csa", 10.0, glue=3.0) | {"tokens_per_second": 1.0, "step": {}, "layers": 3}
    point |= {"called_us": 7000.0, "called_least_us": 6000.0, "called_most_us": 17000.0}
    old = figures_decode_layers.layers([point | {"unmatched": 9}])
    assert any(line.split()[-5:] == ["3", "7000", "(6000", "to", "17000)"] for line in _lines(old)), "9 of three layers"
    others = [{"kernel": "a", "plain": "b", "class": "moe", "launches": 3.0}]
    others.append({"kernel": "c", "plain": None, "class": "glue", "launches": 2.0})
    new = figures_decode_layers.layers([point | {"others": others, "profiled": 8}])
    assert "2, 3 renamed" in new.text and "the mean of 8 profiled replays at most" in new.text
    assert "Not found by name: 'a' for 'b' (moe) and 'c' of no other name (glue)." in new.text


def test_a_rung_that_gains_nothing():
    """Said with what the samples spread; the stock step with the bounded indexer alone is no rung below another."""

    def point(variant, *us):
        return timed(variant, "csa", sorted(us)[len(us) // 2]) | {"us": list(us)}

    ladder = [point("stock", 100.0), point("stock, mma", 40.0), point("stock, bounded indexer", 90.0)]
    assert figures_decode_layers.slower([*ladder, point("mma, bounded indexer", 30.0)]) == [
        "Each rung takes less time than the one before it, in all 2 pairs of neighbours."
    ]
    near = figures_decode_layers.slower([*ladder, point("mma, bounded indexer", 39.0, 41.0, 42.0)])
    assert near[0].startswith("1 of 2 pairs") and "41.0 µs, 'stock, mma' 40.0, equal within the spread" in near[1]
    far = figures_decode_layers.slower([*ladder, point("mma, bounded indexer", 40.5, 41.0, 42.0)])
    assert "slower, by more than the samples spread (40.5 to 42.0, 40.0 to 40.0)" in far[1]
    assert figures_decode_layers.slower(ladder[:1]) == []


def test_what_the_notebook_concludes():
    points = [
        timed(name, kind, us) for name, us in (("stock", 100.0), ("and overlap", 10.0)) for kind in decode_model.LAYERS
    ]
    points = [p | {"status": "pass", "reason": "", "tokens_per_second": 64e6 / p["median_us"]} for p in points]
    status, text = conclusions.sweep(points)
    assert status == "pass" and text == (
        "6 of 6 sweep points timed. Extrapolated to all 43 layers, embedding and head: 147,126 tok/s of one rank of "
        "eight, no communication, with 'and overlap' at batch 64, context 8192 of 131072, 9.9 times what 'stock' gives "
        "there."
    )
    alone = [p | {"step": decode_point.DEFAULTS | {"tp": 1}} for p in points if p["layer"] != "swa"]
    assert "Extrapolated to 41 of 43 layers, sliding-window layers and ends left out: " in conclusions.sweep(alone)[1]
    assert " tok/s of one GPU with " in conclusions.sweep(alone)[1]


@pytest.mark.parametrize(
    ("tp", "text"),
    [
        (8, "one rank of eight: 8 heads, experts at an eighth of their width, no communication"),
        (4, "one rank of four: 16 heads, experts at a quarter of their width, no communication"),
        (2, "one rank of two: 32 heads, experts at half of their width, no communication"),
        (1, "one GPU with all heads and whole experts"),
    ],
)
def test_what_a_rank_has(monkeypatch, tp, text):
    """Said beside every share and every speed; communication is left out of all but a GPU that is alone."""
    shape = SIZES["flash"].rank(tp)
    assert str(shape.heads) in text or tp == 1
    monkeypatch.setattr(figures_decode, "sweep_points", lambda records: records)
    monkeypatch.setattr(figures_decode, "jobs", lambda records: None)
    extra = {"tokens_per_second": 1.0, "step": decode_point.DEFAULTS | {"tp": tp}, "status": "pass", "reason": ""}
    points = [
        timed(name, kind, us, batch, attention=us) | extra
        for name, us in (("stock", 9.0), ("stock, mma", 3.0))
        for kind in decode_model.LAYERS
        for batch in (1, 64)
    ]
    shown = figures_decode.decode(points, "NVIDIA H200").text
    said = conclusions.sweep(points)[1]
    assert shown.count(text) >= 5 and ("no communication" in shown) == ("no communication" in said) == (tp > 1)
    assert f"tok/s of {text.partition(':')[0].partition(' with')[0]}" in said
    assert ("All ranks work on the same tokens" in shown) == (tp > 1)
