"""Dynamo's trace without a GPU: Triton kernels seen, breaks with the user's line, recompiles with their guard."""

import json
from pathlib import Path

import pytest
import torch

from capturebook import cli
from capturebook.attribution import judge
from capturebook.cli import tracing
from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from evidence.records import info
from test_probes import Run

STEPS = Path(__file__).parent / "planted_trace.py"
NAMES = [
    *("sound", "breaks_twice", "counts_in_python", "reads_a_result", "of_two_shapes", "hides_its_kernel"),
    *("has_a_stream", "raises"),
]


@pytest.fixture(scope="module")
def traced(tmp_path_factory, probe_server):
    """{name: record}, each traced in a process of its own."""
    probes = [
        Probe(
            kind="trace",
            job="capturebook.probes.trace:run",
            subject=Subject(target=f"{STEPS}:{name}"),
            arm=Arm(capture="none", compile="eager"),
            args={"target": 90},
        )
        for name in NAMES
    ]
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        return dict(zip(NAMES, pool.run(probes)))


def line_of(code: str) -> int:
    return next(n for n, line in enumerate(STEPS.read_text().splitlines(), 1) if code in line)


def test_kernels_are_traced_in_one_graph_and_not_launched(traced):
    found = traced["sound"]
    assert found.status == "pass", found.chain
    assert found.payload["kernels"] == {"double_kernel": 1, "tuned_kernel": 1}
    assert (found.payload["graphs"], found.payload["breaks"], found.payload["launches"]) == (1, [], {})
    assert (found.payload["recompiles"], found.payload["calls"]) == ([], 4)
    assert found.payload["torch"] == torch.__version__ and found.payload["target"] == "sm_90"
    assert "asks for CUDA memory while it runs" in found.caveats[0]


def test_suspicions_are_told_where_the_host_has_a_part(traced):
    """A break at a foreign call is none; one at a value is; so is a Python counter. All from what Dynamo said."""
    sound, breaks, counts = (tracing.told(traced[name]) for name in ("sound", "breaks_twice", "counts_in_python"))
    assert not any("suspect" in line for line in sound)
    (at,) = [number for number, line in enumerate(breaks) if "suspect" in line]
    assert "if x.sum() > 0" in breaks[at - 1] and "error 900 (class K2)" in breaks[at]
    assert not any("Explanation" in line for line in breaks)
    assert [line for line in counts if "suspect" in line][0].endswith("(class K6)")


def test_a_recompile_for_a_value_that_no_launch_wrote_accuses_nobody(traced):
    """The read itself is told, and what is compiled anew behind it; that the host keeps anything is not."""
    found = traced["reads_a_result"]
    assert found.status == "pass" and "asks for CUDA memory while it runs" in found.caveats[0], found.chain
    (broke,) = found.payload["breaks"]
    assert broke["line"] == line_of("# read") and broke["file"].endswith("planted_trace.py")
    assert {r["call"] for r in found.payload["recompiles"]} >= {1}
    told = tracing.told(found)
    (suspected,) = [line for line in told if "suspect" in line]
    assert suspected.endswith("(class K2)")
    assert any("compiled again at call 2" in line and "behind a value read on the host" in line for line in told)


def test_one_function_called_in_two_ways_changes_nothing(traced):
    found = traced["of_two_shapes"]
    assert found.status == "pass" and [r["call"] for r in found.payload["recompiles"]] == [0], found.chain
    assert not any("suspect" in line for line in tracing.told(found))


def test_breaks_are_at_the_users_line(traced):
    found = traced["breaks_twice"]
    assert found.status == "pass", found.chain
    broke = {entry["line"]: entry for entry in found.payload["breaks"]}
    assert set(broke) == {line_of("foreign()  # before"), line_of("if x.sum() > 0")}
    assert all(entry["file"].endswith("planted_trace.py") for entry in broke.values())
    assert "_FuncPtr" in broke[line_of("foreign()  # before")]["reason"]
    assert found.payload["kernels"] == {"double_kernel": 1}
    assert not found.payload["recompiles"]


def test_a_recompile_names_the_guard_that_failed(traced):
    found = traced["counts_in_python"]
    assert found.status == "pass", found.chain
    assert [(r["call"], r["guard"]) for r in found.payload["recompiles"]] == [
        (1, "now['i'] == ''"), (2, "now['i'] == 'x'"), (3, "now['i'] == 'xx'"),
    ]  # fmt: skip
    assert found.payload["recompiles"][0]["line"] == line_of("len(now[")
    assert found.payload["graphs"] == 4


def test_what_runs_outside_the_graphs_is_counted_and_not_launched(traced):
    found = traced["hides_its_kernel"]
    assert found.status == "pass", found.chain
    assert (found.payload["kernels"], found.payload["launches"]) == ({}, {"double_kernel": 4})
    assert found.payload["breaks"]


def test_a_step_that_needs_cuda_is_skipped_and_says_so(traced):
    found = traced["has_a_stream"]
    assert found.status == "skipped" and found.reason.startswith("not traced without a GPU: ")


def test_an_error_of_the_step_is_an_error(traced):
    found = traced["raises"]
    assert found.status == "fail" and found.payload["torch"] == torch.__version__


def test_a_trace_is_no_evidence(traced):
    for name in ("sound", "raises"):
        record = traced[name]
        verdict = judge(info(record.arm) | {"nonce": record.nonce}, {}, [record])
        assert verdict.owner == "not_run" and not verdict.records and not verdict.hazards


def test_the_command_without_a_gpu_traces_and_says_what_stays_open(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["probe", f"{STEPS}:breaks_twice", "--json", "--run-dir", str(tmp_path / "run")]
    assert cli.main(words) == 3
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["owner"] == "not_run" and found["trace"]["status"] == "pass"
    lines = {entry["line"] for entry in found["trace"]["breaks"]}
    assert lines == {line_of("foreign()  # before"), line_of("if x.sum() > 0")}
    assert "Not decided without a CUDA GPU: whether the step survives capture and replay" in err
    assert f"torch {torch.__version__}" in err and "no evidence for a verdict" in err
    assert f"break at {found['trace']['breaks'][1]['file']}:{line_of('if x.sum() > 0')}: if x.sum() > 0" in err
