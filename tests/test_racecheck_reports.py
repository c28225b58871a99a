"""Reading racecheck's reports: a race elsewhere than in the hand-over is not taken for it."""

import pytest

from racecheck_reports import handed_over, pairs

REPORT = """\
========= Error: Race reported between Write access at gluon_fp8_kernel+0x6770 in {store}
=========     and Read access at gluon_fp8_kernel+0x16a0 in {load} [256 hazards]
=========     and Read access at gluon_fp8_kernel+0x16d0 in {load} [256 hazards]
=========
========= Error: Race reported between Read access at gluon_fp8_kernel+0x130 in {own}
=========     and Write access at gluon_fp8_kernel+0x4490 in {own} [18 hazards]
=========
right
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""


def places(cache):
    (own,) = next(pair for pair in handed_over(cache) if len(pair) == 1)
    (both,) = [pair for pair in handed_over(cache) if len(pair) == 2]
    load = next(place for place in both if place.startswith("gluon_consume.py:"))
    (store,) = both - {load}
    return {"own": own, "store": store, "load": load}


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_the_hand_over_is_recognised_and_nothing_else(cache):
    known = places(cache)
    assert known["store"].startswith(f"gluon_{cache}.py:") and known["own"].startswith(f"gluon_{cache}.py:")
    assert pairs(REPORT.format(**known)) == handed_over(cache)
    for what in known:
        elsewhere = pairs(REPORT.format(**known | {what: "gluon_consume.py:7"}))
        assert not elsewhere <= handed_over(cache), what
    assert pairs("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n") == set()


def test_a_race_without_its_place_is_not_passed_over():
    with pytest.raises(ValueError, match="without its place"):
        pairs("========= Error: Race reported between Write access at gluon_fp8_kernel+0x6770\n")
