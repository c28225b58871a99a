"""Attribution from the command line on a GPU: verdict, smallest failing set and gain of planted and built-in steps."""

import json
import re
from pathlib import Path

import pytest

from capturebook import cli

pytestmark = pytest.mark.gpu
STEPS = Path(__file__).parent / "planted_steps_gpu.py"
BUILT_IN = "capturebook.subjects.sparse_mla:build"


def probe(capsys, tmp_path, target: str, question: str = "") -> dict:
    words = ["probe", target, "--question", question, "--smallest", "--json", "--run-dir", str(tmp_path / "run")]
    status = cli.main(words)
    out, err = capsys.readouterr()
    assert status == 0, err
    return {**json.loads(out), "said": err}


def test_bad_wiring_needs_the_capture_alone(capsys, tmp_path):
    found = probe(capsys, tmp_path, f"{STEPS}:joins_what_it_never_forked")
    assert (found["owner"], found["class"]) == ("kernel", "K3")
    assert found["smallest"]["factors"] == {"capture": "global"} and found["smallest"]["minimal"]
    (probe_id,) = re.findall(r"capturebook repro \S+ (\w+) -o repro.py", found["said"])
    assert cli.main(["repro", str(tmp_path / "run"), probe_id, "-o", str(tmp_path / "repro.py")]) == 0
    assert "proven: run in a process of its own, it shows the same: fail 905" in capsys.readouterr().out


def test_a_cold_autotune_needs_cold_live_and_the_capture(capsys, tmp_path):
    question = "kernel=mma,warmup=kernel_cold,overlap=false,graph_break=none"
    found = probe(capsys, tmp_path, BUILT_IN, question)
    assert (found["owner"], found["class"], found["fixed"]) == ("kernel", "K1", "fixed"), found["sentence"]
    small = found["smallest"]
    assert small["factors"] == {"capture": "global", "tuning": "live", "warmup": "kernel_cold"}, small
    assert small["minimal"]


@pytest.mark.alone
def test_the_story_needs_all_five_and_its_fix_is_timed_in_turns(capsys, tmp_path):
    question = "kernel=mma,compile=default,overlap=true,sync=stream,graph_break=between"
    found = probe(capsys, tmp_path, BUILT_IN, question)
    assert (found["owner"], found["class"], found["fixed"]) == ("stack", "B5", "fixed"), found["sentence"]
    small = found["smallest"]
    assert set(small["factors"]) == {"capture", "compile", "overlap", "sync", "graph_break"}, small
    assert small["no_part"] == {"tuning": "live"} and small["minimal"], small
    assert found["gain"]["baseline"] == "compile=none", found["gain_reason"]
    low, high = found["gain"]["ratio_iqr"]
    assert 0 < low <= high and found["gain"]["ratio"] > 0
