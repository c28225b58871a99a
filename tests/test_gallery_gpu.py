"""The gallery on a GPU: every case gets the class that is known of it, and no sound step is accused."""

import json
from pathlib import Path

import pytest

from capturebook.cli import main
from capturebook.gallery.cases import CASES
from capturebook.gallery.evaluate import with_repaired

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gallery") / "run"
    main(["gallery", "--run-dir", str(folder), "--limit", "480"])
    return folder


@pytest.fixture(scope="module")
def results(folder) -> dict:
    return {r["case"]: r for r in json.loads((folder / "gallery.json").read_text())["results"]}


@pytest.mark.parametrize("name", [case.id for case in with_repaired(list(CASES.values()))])
def test_the_verdict_is_what_is_known(results, name):
    result = results[name]
    assert result["got"] == result["expected"], result["says"]


def test_the_records_alone_give_the_same_results(folder, results, capsys):
    main(["gallery", "--from", str(folder), "--json"])
    assert {r["case"]: r for r in json.loads(capsys.readouterr().out)} == results
