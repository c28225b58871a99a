"""The gallery on a GPU, by a sample: each class gets what is known of it, and no sound step is accused.

`capturebook gallery` runs all cases, in minutes; the sample takes one or two of every class, the hardest first.
"""

import json
from pathlib import Path

import pytest

from capturebook.cli import main
from capturebook.gallery.cases import CASES
from capturebook.gallery.evaluate import with_repaired

pytestmark = pytest.mark.gpu
SAMPLE = """
    k1_first_call k2_tolist k2_reseeds k2_own_generator k3_waits_on_idle_side k3_raw_copy k4_no_fake
    k5_last_block_forgotten k5_undeclared_mutation k6_scalar k6_output_not_held
    b1_max_autotune b3_variable b4_first_used_in_capture b5_break_between b6_synchroniser b7_no_caching b9_failing_pass
    clean_default_generator clean_three_streams clean_autotuned
""".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gallery") / "run"
    only = [part for name in SAMPLE for part in ("--only", name)]
    main(["gallery", "--run-dir", str(folder), "--limit", "280", *only])
    return folder


@pytest.fixture(scope="module")
def results(folder) -> dict:
    return {r["case"]: r for r in json.loads((folder / "gallery.json").read_text())["results"]}


@pytest.mark.parametrize("name", [case.id for case in with_repaired([CASES[name] for name in SAMPLE])])
def test_the_verdict_is_what_is_known(results, name):
    result = results[name]
    assert result["got"] == result["expected"], result["says"]


def test_the_records_alone_give_the_same_results(folder, results, capsys):
    main(["gallery", "--from", str(folder), "--json"])
    assert {r["case"]: r for r in json.loads(capsys.readouterr().out)} == results
