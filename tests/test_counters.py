"""`capturebook counters` with a stand-in for ncu: its table read, shared out and recorded; each way it can refuse."""

import csv
import io
import json
import os
import stat

import pytest

from capturebook.measure import counters
from capturebook.measure.rows import counters_of
from test_chain_runner import gone

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
HEAD += ["Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]


def table(*kernels) -> str:
    """What `ncu --csv` prints: a line a metric, numbers with commas, lines of its own before the table."""
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(HEAD)
    for number, (name, metrics) in enumerate(kernels):
        for metric, unit, value in metrics:
            place = [number, 1, "python", "host", name, 1, 7, "(128, 1, 1)", "(4, 4, 8)", 0, "9.0", "Command line"]
            rows.writerow([*place, metric, unit, value])
    return "==PROF== Connected to process 1\n" + text.getvalue() + "==PROF== Disconnected\n"


TIME = ("gpu__time_duration.sum", "ns", "12,992")
ISSUE = ("smsp__issue_active.avg.pct_of_peak_sustained_active", "%", "32.59")
WAIT = (counters.STALL.format("wait"), "inst", "0.52")
NONE = (counters.STALL.format("gmma"), "inst", "n/a")


def test_a_table_is_kernels_in_order_with_times_in_us_and_shares():
    first, second = counters.kernels_of(table(("main_kernel", [TIME, ISSUE, WAIT, NONE]), ("combine(float*)", [TIME])))
    assert first["us"] == 12.992 and first["issue"] == 0.3259 and first["stalls"] == {"wait": 0.52}
    assert first["grid"] == [4, 4, 8] and first["block"] == 128
    assert second["kernel"] == "combine" and second["stalls"] == {}


def test_kernels_go_to_the_calls_that_launched_them_or_to_none():
    mark = "at::cuda::<unnamed>::spin_kernel(long)"
    kernels = counters.kernels_of(table(*[(name, [TIME]) for name in ("a", "b", mark, "c", mark)]))
    found = counters.shared_out(kernels, [[0, "auto"], [1, "auto"]])
    assert [row["kernel"] for row in found[0, "auto"]] == ["a", "b"]
    assert [row["kernel"] for row in found[1, "auto"]] == ["c"]
    with pytest.raises(counters.CountersError, match="2 calls counted, 1 made"):
        counters.shared_out(kernels, [[0, "auto"]])
    with pytest.raises(counters.CountersError, match="no kernel counted of a call of auto"):
        counters.shared_out([kernels[0], kernels[2], kernels[4]], [[0, "flashmla"], [1, "auto"]])
    with pytest.raises(counters.CountersError, match="1 calls counted, 2 made"):
        counters.shared_out(kernels[:-1], [[0, "auto"], [1, "auto"]])


@pytest.mark.parametrize(
    "text, said",
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "may not read the GPU's counters"),
        ("==ERROR== Failed to launch\n\n", "it said: ==ERROR== Failed to launch"),
        ("", "it said: nothing"),
    ],
)
def test_no_table_is_one_line_with_its_reason(text, said):
    with pytest.raises(counters.CountersError, match=said) as raised:
        counters.kernels_of(text)
    assert "\n" not in str(raised.value)


def test_the_command_adds_a_record_a_point_to_the_run(tmp_path, monkeypatch, capsys):
    """The run is one that was recorded on an H200; the tool counts what this test says."""
    from capturebook import cli, paths
    from capturebook.chain.folder import RunFolder
    from capturebook.cli import counters as command

    recorded = paths.repository() / "outputs" / "h200-sparse-mla"
    records = RunFolder.open(recorded).records()[0]
    points = counters.asked(records)
    assert points and all(own["kernel"] != "simt" for point in points for own in point["variants"].values())
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "hypothesis.json", "environment.json", "records.jsonl"):
        (run / name).write_bytes((recorded / name).read_bytes())
    calls = [[index, name] for index, point in enumerate(points) for name in point["variants"]]
    kernels = [("kernel", [TIME, ISSUE, WAIT]), ("spin_kernel(long)", [TIME])]
    (tmp_path / "table").write_text(table(*kernels * len(calls)))
    (tmp_path / "made").write_text(json.dumps({"calls": calls, "left": {}, "gpu": "NVIDIA H200"}))
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'Version 2025.3.1 (build 1) (public-release)' && exit\n"
        "while [ $1 != --log-file ]; do shift; done\n"
        f'cp "{tmp_path}/table" "$2"\nfor last; do :; done\n'
        f'if [ -e "{tmp_path}/made" ]; then cp "{tmp_path}/made" "$last"; else cat "{tmp_path}/said" >&2; exit 1; fi\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(command, "gpu_uuid", lambda: "GPU-0")
    monkeypatch.setattr("capturebook.chain.folder.first_change", lambda *given: "")
    assert cli.main(["counters", str(run), "--ncu", str(tool)]) == 0
    found = [record for record in RunFolder.open(run).records()[0] if record.kind == "counters"]
    assert len(found) == len(points)
    rows = found[0].payload["kernels"]
    shown = counters_of(found)
    assert len(shown) == len(calls) and shown[0]["us"] == 12.992 and shown[0]["waits"] == [("wait", 0.52)]
    assert found[0].payload["tool"] == "ncu 2025.3.1" and all(row[0]["issue"] == 0.3259 for row in rows.values())
    assert cli.main(["counters", str(run), "--ncu", str(tmp_path / "none")]) == 2
    assert "is not on PATH" in capsys.readouterr().err
    hangs = tmp_path / "hangs"
    hangs.write_text(f'#!/bin/sh\nsleep 100 & echo $! > "{tmp_path}/pid"\nwait\n')
    hangs.chmod(0o755)
    assert cli.main(["counters", str(run), "--ncu", str(hangs), "--deadline", "1"]) == 3
    assert "not done after 1 s" in capsys.readouterr().err
    assert gone(int((tmp_path / "pid").read_text())), "what the tool started ends too"
    os.remove(tmp_path / "made")
    (tmp_path / "said").write_text("Traceback\nRuntimeError: no such slot\n")
    (tmp_path / "table").write_text("==ERROR== The application returned an error code (1).\n")
    assert cli.main(["counters", str(run), "--ncu", str(tool)]) == 3
    assert "ncu: exit 1: RuntimeError: no such slot" in capsys.readouterr().err, "the process's own words, not ncu's"
    (tmp_path / "said").write_text("")
    (tmp_path / "table").write_text("==ERROR== ERR_NVGPUCTRPERM\n")
    assert cli.main(["counters", str(run), "--ncu", str(tool)]) == 3
    assert "may not read the GPU's counters" in capsys.readouterr().err
