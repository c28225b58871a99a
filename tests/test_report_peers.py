"""The table of sparse MLA beside its peers: ratios by hand, heads, limits, reasons of what was left out."""

import pytest

from capturebook.kernels.sparse_mla.cost import decode_cost
from capturebook.measure import targets
from capturebook.measure.rows import entries_of
from capturebook.report import conclusions, figures_peers, figures_sweep

COMMON = {
    "lists": "V4-Flash, 128 + 512 tokens",
    "shape": "flash",
    "cache": "fp8",
    "batch": 8,
    "context": 8192,
    "heads": 8,
}
COMMON |= {"floor_us": 0.5, "floor_bound": "bytes", "tokens_per_second": 1.0, "tuning": "pinned", "reason": ""}
COMMON |= {"entries": 640.0}


def point(kernel, us, padded=None, **more):
    timed = {"share": 0.5 / us[len(us) // 2], "padded_heads": padded, "config": "As it is"} if us else {}
    return {**COMMON, "variant": kernel, "kernel": kernel, "us": us, "status": "pass", **timed, **more}


POINTS = [
    point("simt", [29.0, 30.0, 31.0], 8),
    point("mma", [9.0, 10.0, 11.0], 16),
    point("flashmla", [12.0, 12.5, 13.0], 64),
    point("sdpa", [], status="skipped", reason="out is off by 0.1 (not timed)"),
]


def tables(points):
    """{caption, or the first column: [{column: cell}]} of the block."""
    import html
    import re

    found, text = {}, figures_peers.compared(points).html
    for one in re.findall(r"<table>(.*?)</table>", text):
        lines = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", one)]
        lines = [[html.unescape(re.sub("<[^>]*>", " ", cell)).strip() for cell in line] for line in lines]
        title = re.search(r"<caption>(.*?)</caption>", one)
        found[title.group(1) if title else lines[0][0]] = [dict(zip(lines[0], line)) for line in lines[1:]]
    return found


FLASH = "V4-Flash, 128 + 512 tokens, fp8 pages, 8 heads, context 8,192"
ENTRIES = "Entries: of a request, on average."


def test_ratios_are_taken_within_a_point():
    found = tables([*POINTS, point("mma", [4.9, 5.0, 5.1], 16, batch=1)])
    alone, both = found[f"{FLASH}. As it is. {ENTRIES}"]
    assert (alone["Entries"], both["Entries"]) == ("640", "640")
    assert (both["Batch"], both["Ours (µs)"], both["FlashMLA (µs)"], both["Ours / FlashMLA"]) == (
        "batch 8", "10.00", "12.50", "0.80"
    )  # fmt: skip
    assert (both["SIMT (µs)"], both["SIMT / ours"], both["Ours / floor"]) == ("30.00", "3.0", "20")
    assert both["Heads"] == "8, ours as 16, FlashMLA as 64"
    assert (alone["Batch"], alone["Ours / FlashMLA"], alone["SIMT / ours"]) == ("batch 1", "", "")
    assert "Target" not in both, "no point says that it ran on an H200"
    told = {(row["Batch"], row["What"]): row for row in found["What"]}
    assert told["8", "flashmla"]["This over FlashMLA"] == "" and told["8", "flashmla"]["SIMT over this"] == "2.4"
    assert found["Not timed"] == [
        {"Not timed": "sdpa", "Status": "skipped", "Why": "out is off by 0.1 (not timed)", "Where": "flash 8"}
    ]


def test_auto_is_ours_where_it_was_timed():
    ours = figures_peers._roles([point("mma", [9.0], 16), point("gluon", [8.0], 64), point("auto", [7.0], 64)])
    assert ours["ours"]["kernel"] == "auto" and set(ours) == {"ours"}


@pytest.mark.parametrize(
    "us, ratio, said", [(8.0, "0.64", "met"), (8.3, "0.66", "equal within 3 %"), (8.5, "0.68", "missed")]
)
def test_a_target_is_met_by_a_ratio_of_the_same_process(us, ratio, said):
    """At batch 1 the issue asks for 0.65 of FlashMLA's time, and calls equal what is within 3 %."""
    here = {"batch": 1, "gpu": "NVIDIA H200"}
    group = [point("auto", [us], 16, **here), point("flashmla", [12.5], 64, **here)]
    (row,) = tables(group)[f"{FLASH}. As it is. {ENTRIES}"]
    assert row["Ours / FlashMLA"] == ratio and row["Target"].endswith(f"ratio ≤ 0.65: {said}")
    text = figures_peers.compared(group).text
    missed = "Missed: ours / FlashMLA of flash in fp8 at batch 1." in text
    assert missed == (said == "missed") and f"{0 if missed else 1} of 1 target met (set for this kernel on an" in text
    assert ("1 within 3 %, which counts as equal" in text) == said.startswith("equal")
    status, concluded = conclusions.sweep(group)
    assert status == "pass" and concluded.endswith(figures_peers.targets_met(group)) and "1 target met" in concluded
    elsewhere = [{**p, "gpu": "NVIDIA RTX PRO 6000"} for p in group]
    (row,) = tables(elsewhere)[f"{FLASH}. As it is. {ENTRIES}"]
    assert "Target" not in row and "No targets" in figures_peers.compared(elsewhere).text


def test_a_target_missed_at_several_contexts_names_its_batch_once():
    here = {"batch": 8, "gpu": "NVIDIA H200"}
    both = [point("auto", [9.0], 16, **here, context=context) for context in (2048, 8192)]
    both += [point("flashmla", [9.0], 64, **here, context=context) for context in (2048, 8192)]
    said = "0 of 2 targets met (set for this kernel on an H200: a ratio to FlashMLA, or µs). "
    said += "Missed: ours / FlashMLA of flash in fp8 at batch 8."
    assert figures_peers.targets_met(both) == said


def test_targets_of_bf16_are_times_and_the_gain_over_the_stock_kernel():
    here = {**COMMON, "batch": 64, "gpu": "NVIDIA H200", "cache": "bf16"}
    judged = targets.judged(here, 30.0, 1200.0, 25.0)
    assert [(t["what"], t["target"], t["met"]) for t in judged] == [
        ("ours, µs", 28.0, "missed"), ("SIMT / ours", 30.0, "met"), ("SIMT, µs", 1200.0, "met")
    ]  # fmt: skip
    assert [t["met"] for t in targets.judged(here, 28.0, 820.0, None)] == ["met", "equal", "met"]
    assert targets.judged(here, 27.0) == [
        {"what": "ours, µs", "found": 27.0, "target": 28.0, "least": False, "met": "met", "entries": 640}
    ]
    assert targets.judged({**here, "batch": 2}, 27.0) == [] == targets.judged({**here, "gpu": "NVIDIA H100"}, 27.0)


def test_times_count_at_full_lists_only_and_ratios_at_nearly_full_ones():
    """The issue's times are of 640 entries. At 600 a kernel does less and may be as fast by that alone, though two at
    the same 600 compare; at 256, a context of 512, what does not grow with the list weighs too much for that.
    What takes too long for 600 does so for 640."""
    here = {"batch": 64, "gpu": "NVIDIA H200", "cache": "bf16"}
    made = {"auto": 27.0, "simt": 1100.0}
    for entries, times, ratio in ((640, "met", "met"), (600.3, "unjudged", "met"), (256, "unjudged", "unjudged")):
        place = {**COMMON, **here, "entries": entries}
        got = {t["what"]: t["met"] for t in targets.judged(place, made["auto"], made["simt"])}
        assert got == {"ours, µs": times, "SIMT, µs": times, "SIMT / ours": ratio}, entries
        got = {t["what"]: t["met"] for t in targets.judged(place, 29.0, 800.0)}
        assert got == {"ours, µs": "missed", "SIMT, µs": times, "SIMT / ours": "missed" if ratio == "met" else ratio}
    group = [point(kernel, [us], 64, **here, entries=600.3) for kernel, us in made.items()]
    caption = "V4-Flash, 128 + 512 tokens, bf16 rows, 8 heads, context 8,192. Entries: of a request, on average"
    (row,) = tables(group)[f"{caption}; what is not judged was set at 640."]
    assert row["Entries"] == "600" and "ours, µs ≤ 28: not judged" in row["Target"]
    assert figures_peers.targets_met(group) == (
        "1 of 1 target met (set for this kernel on an H200: a ratio to FlashMLA, or µs). Lists held 94 % of the "
        "entries that the targets were set at, so 2 targets are not judged (ours, µs; SIMT, µs)."
    )
    short = [{**p, "entries": 256} for p in group]
    assert figures_peers.targets_met(short) == (
        "Lists held 40 % of the entries that the targets were set at, so 3 targets are not judged "
        "(ours, µs; SIMT / ours; SIMT, µs)."
    )
    html = figures_sweep.sweep([*group, point("auto", [9.0], 64, lists="V3.2, 2048 tokens", entries=2048)]).html
    said = "on average: 600 (V4-Flash, 128 + 512 tokens), 2048 (V3.2, 2048 tokens)."
    assert f"Entries that a request reads, {said}" in html and '<td data-label="Entries">600</td>' in html


@pytest.mark.parametrize("cache, heads, entries", [("fp8", 64, 600), ("bf16", 8, 640), ("v32", 128, 2048)])
def test_records_that_do_not_say_the_entries_have_their_flops(cache, heads, entries):
    """Shown by the cost model that wrote them."""
    flops = decode_cost(8, heads, 8 * entries, cache).flops
    old = {"lists": "some", "cache": cache, "heads": heads, "batch": 8, "flops": flops}
    assert entries_of(old) == entries and entries_of({**old, "entries": 7.5}) == 7.5
    assert entries_of({**old, "lists": None}) is None and entries_of({**old, "flops": None}) is None


@pytest.mark.parametrize(
    "share, bound, said",
    [
        (0.6, "bytes", "bytes (60%)"),
        (0.5, "flops", "tensor pipe (50%)"),
        (0.05, "flops", "latency (5% of tensor pipe)"),
        (None, None, ""),
    ],
)
def test_what_limits(share, bound, said):
    assert figures_peers.limit({"share": share, "floor_bound": bound}) == said


def test_points_without_lists_have_no_row_and_other_shapes_and_formats_a_panel():
    own = {name: value for name, value in POINTS[0].items() if name not in ("lists", "entries")}
    assert figures_peers.compared([own]).text.strip() == "Nothing of sparse MLA decode was timed."
    pro = {**POINTS[1], "shape": "pro", "lists": "V4-Pro, 128 + 1024 tokens"}
    bf16 = {**POINTS[1], "cache": "bf16", "variant": "mma"}
    html = figures_sweep.sweep([POINTS[0], pro, bf16]).html
    assert (
        "for simt, mma, one panel for each of: V4-Flash, 128 + 512 tokens, fp8, context 8,192; "
        "V4-Pro, 128 + 1024 tokens, fp8, context 8,192; V4-Flash, 128 + 512 tokens, bf16, context 8,192."
    ) in html


def test_the_recorded_run_beside_flashmla_is_whole_where_it_ran(repo):
    """outputs/h200-sparse-mla: every timed call was checked against float64, and the tables are made of its samples."""
    from statistics import median

    from capturebook.chain.folder import RunFolder
    from capturebook.measure.rows import sweep_points

    records, torn = RunFolder.open(repo / "outputs" / "h200-sparse-mla").records()
    timed = [r for r in records if r.kind == "sweep" and r.status == "pass"]
    fp8 = [r.payload["batch"] for r in timed if (r.payload["shape"], r.payload["cache"]) == ("flash", "fp8")]
    assert not torn and {1, 8, 32, 64} <= set(fp8)
    told = {
        (row["Lists"], row["Cache"], row["Batch"], row["What"]): row for row in tables(sweep_points(records))["What"]
    }
    for record in timed:
        point = record.payload
        assert all(check.ok and check.error <= check.tolerance <= 3e-3 for check in record.checks)
        assert {check.call for check in record.checks} == set(record.samples)
        assert all(len(us) == 15 for us in record.samples.values())
        assert point["sets"] * point["bytes"] >= 180e6, "one replay gathers more than the cache holds"
        times = {point["variants"][name]["kernel"]: median(us) for name, us in record.samples.items()}
        place = (point["lists"], point["cache"], str(point["batch"]))
        theirs = next((times[name] for name in figures_peers.FLASHMLA if name in times), None)
        if theirs:
            assert told[*place, "auto"]["This over FlashMLA"] == f"{times['auto'] / theirs:.2f}"
        if "simt" in times:
            assert told[*place, "auto"]["SIMT over this"] == f"{times['simt'] / times['auto']:.1f}"
        assert theirs or point["cache"] != "fp8" or point["shape"] in ("hca", "window"), "FlashMLA was there"
        held = point["flops"] / (2 * point["heads"] * (1088 if point["cache"] == "v32" else 1024)) / point["batch"]
        assert told[*place, "auto"]["Entries"] == f"{held:.0f}"
