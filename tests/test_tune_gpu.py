"""`tune` on a GPU: candidates checked and timed, an entry made of them. No assertion on a time."""

import pytest

from capturebook.measure import tune
from capturebook.params import Params
from test_measure_gpu import pool  # noqa: F401, the fixture

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


def test_candidates_are_checked_and_timed_and_make_an_entry(pool):  # noqa: F811
    bucket = tune.Bucket("simt", "bf16", 8, 1)
    (record,) = pool.run(tune.plan_tune([bucket], Params(samples=5, deadline=180.0)))
    assert record.status == "pass", record.reason or record.root
    assert all(check.ok for check in record.checks) and record.payload["left"] == {}
    assert len(record.samples) >= 4 and all(len(us) == 5 for us in record.samples.values())
    facts = {"gpu": {"name": "here", "sm": "sm_90"}, "torch": "t", "triton": "t"}
    made = tune.entry(record, facts)
    assert made["config"]["kwargs"]["BLOCK_N"] <= made["entries"] and set(made["timed"]) == set(record.samples)
