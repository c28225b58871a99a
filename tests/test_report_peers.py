"""The table of sparse MLA beside its peers: ratios by hand, heads, limits, reasons of what was left out."""

import pytest

from capturebook.report import figures_peers, figures_sweep

COMMON = {
    "lists": "V4-Flash, 128 + 512 tokens",
    "shape": "flash",
    "cache": "fp8",
    "batch": 8,
    "context": 8192,
    "heads": 8,
}
COMMON |= {"floor_us": 0.5, "floor_bound": "bytes", "tokens_per_second": 1.0, "tuning": "pinned", "reason": ""}


def point(kernel, us, padded=None, **more):
    timed = {"share": 0.5 / us[1], "padded_heads": padded} if us else {}
    return {**COMMON, "variant": kernel, "kernel": kernel, "us": us, "status": "pass", **timed, **more}


POINTS = [
    point("simt", [29.0, 30.0, 31.0], 8),
    point("mma", [9.0, 10.0, 11.0], 16),
    point("flashmla", [12.0, 12.5, 13.0], 64),
    point("sdpa", [], status="skipped", reason="out is off by 0.1 (not timed)"),
]


def rows(points):
    import html
    import re

    block = figures_peers.compared(points)
    found = re.findall(r"<tr>(.*?)</tr>", block.html)
    return [[html.unescape(re.sub("<[^>]*>", "", c)) for c in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", r)] for r in found]


def test_ratios_are_taken_within_a_point():
    head, *body = rows([*POINTS, point("mma", [4.9, 5.0, 5.1], 16, batch=1)])
    told = {(row[2], row[6]): dict(zip(head, row)) for row in body}
    mma = told["8", "mma"]
    assert (mma["Heads"], mma["Computed"], mma["Median (µs)"], mma["Times the floor"]) == ("8", "16", "10.00", "20")
    assert (mma["SIMT over this"], mma["This over FlashMLA"]) == ("3.0", "0.80")
    assert told["8", "flashmla"]["This over FlashMLA"] == "" and told["8", "flashmla"]["SIMT over this"] == "2.4"
    assert told["8", "sdpa"]["Limited by"] == "skipped: out is off by 0.1 (not timed)"
    assert told["1", "mma"]["SIMT over this"] == "" and told["1", "mma"]["This over FlashMLA"] == ""


@pytest.mark.parametrize(
    "share, bound, said",
    [
        (0.6, "bytes", "bytes (60% of its rate)"),
        (0.5, "flops", "tensor pipe (50% of its rate)"),
        (0.05, "flops", "neither bytes nor tensor pipe (5% of the nearer): latency, instructions"),
        (None, None, ""),
    ],
)
def test_what_limits(share, bound, said):
    assert figures_peers.limit({"share": share, "floor_bound": bound}) == said


def test_points_without_lists_have_no_row_and_other_shapes_a_panel():
    own = {**POINTS[0], "lists": None}
    assert figures_peers.compared([own]).text.strip() == "Nothing of sparse MLA decode was timed."
    pro = {**POINTS[1], "shape": "pro", "lists": "V4-Pro, 128 + 1024 tokens"}
    assert "one panel for each of: context 8,192; V4-Pro, 128 + 1024 tokens, context 8,192" in (
        figures_sweep.sweep([POINTS[0], pro]).html
    )


def test_the_recorded_run_beside_flashmla_is_whole_where_it_ran(repo):
    """outputs/h200-sparse-mla: every timed call was checked against float64, and the tables are made of its samples."""
    from statistics import median

    from capturebook.chain.folder import RunFolder
    from capturebook.measure.rows import sweep_points

    records, torn = RunFolder.open(repo / "outputs" / "h200-sparse-mla").records()
    timed = [r for r in records if r.kind == "sweep" and r.status == "pass"]
    assert not torn and [r.payload["batch"] for r in timed] == [1, 8, 32, 64]
    for record in timed:
        assert all(check.ok and check.error <= check.tolerance <= 3e-3 for check in record.checks)
        assert (
            {check.call for check in record.checks} == set(record.samples) >= {"auto fp8", "flashmla fp8", "simt fp8"}
        )
        assert all(len(us) == 15 for us in record.samples.values())
        assert record.payload["sets"] * record.payload["batch"] * 560 * 585 >= 180e6
    head, *body = rows(sweep_points(records))
    told = {(row[2], row[6]): dict(zip(head, row)) for row in body}
    for record in timed:
        ours, theirs = (median(record.samples[name]) for name in ("auto fp8", "flashmla fp8"))
        assert told[str(record.payload["batch"]), "auto"]["This over FlashMLA"] == f"{ours / theirs:.2f}"
