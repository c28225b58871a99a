"""The whole build check through the probe pool: rows, deaths of the compiler, what was left out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from capturebook.measure.build import BuildError, build_rows
from capturebook.measure.rows import build_rows_of
from capturebook.probes import ProbePool

EXAMPLES = Path(__file__).with_name("build_examples.py")


@pytest.fixture(scope="module")
def pool(tmp_path_factory, probe_server):
    records = []
    run = SimpleNamespace(
        path=tmp_path_factory.mktemp("run"), name="test", nonce="f00d", append=records.append, records=records
    )
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


def test_an_aborting_compiler_is_a_row_and_the_rest_goes_on(pool, tmp_path):
    built = build_rows(pool.run, "sm_90", True, examples=f"{EXAMPLES}:failing_examples", cache=str(tmp_path / "cache"))
    aborting, broken, good = built.rows
    assert aborting["status"] == "fail" and "signal 6 (SIGABRT) at build" in aborting["reason"]
    assert aborting["kernel"] == "aborting" and aborting["target"] == "sm_90" and "registers" not in aborting
    assert broken["status"] == "fail" and "power of 2" in broken["reason"]
    assert good["status"] == "pass" and good["registers"] > 0 and good["reason"] == ""
    assert built.failed == [aborting, broken] and built.left == 0
    assert build_rows_of(pool.run_folder.records) == built.rows  # the records alone say as much
    assert len(list((tmp_path / "cache").glob("*.json"))) == 1


def test_default_and_pinned_configurations_and_the_count_of_those_left(pool, tmp_path):
    where, cache = f"{EXAMPLES}:three_configs", str(tmp_path / "cache")
    built = build_rows(pool.run, ["sm_80", "sm_120"], False, examples=where, cache=cache)
    assert [(row["config"].split()[0], row["target"], row["pinned"]) for row in built.rows] == [
        ("BLOCK=256", "sm_80", False),
        ("BLOCK=1024", "sm_80", True),
        ("BLOCK=256", "sm_120", False),
        ("BLOCK=512", "sm_120", True),
    ]
    assert built.left == 2 and not built.failed
    whole = build_rows(pool.run, ["sm_80", "sm_120"], True, examples=where, cache=cache)
    assert [row["cached"] for row in whole.rows] == [True, False, True, True, True, False]
    assert whole.left == 0


def test_kernels_that_cannot_be_listed_are_one_clear_line(pool):
    with pytest.raises(BuildError, match="could not be listed: RuntimeError: no kernels today"):
        build_rows(pool.run, "sm_90", False, examples=f"{EXAMPLES}:no_examples", cache="")


def test_a_bad_target_is_refused_before_anything_starts(pool):
    before = len(pool.run_folder.records)
    with pytest.raises(ValueError, match="targets: 'sm_10'"):
        build_rows(pool.run, "sm_10", False)
    assert len(pool.run_folder.records) == before
