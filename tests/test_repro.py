"""Exported scripts, run: failures that need no GPU show their root without capturebook; what differs is not claimed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from capturebook import cli
from capturebook.probes import Probe, ProbePool, processes
from capturebook.records import Arm, Check, Subject
from capturebook.repro import ReproError, prove, write
from capturebook.repro.sources import sources
from evidence.records import fail, record
from test_probes import Run, until

STEPS = Path(__file__).parent / "planted_steps.py"
INFO = {"parameters": {"env": {}, "preload": []}, "provenance": {"gpu": None}}
CALLED = Arm(capture="none", warmup="warm1")

FAILING = {
    "a compile error under fullgraph": ("untraceable", CALLED.changed(compile="eager", fullgraph=True), "fail"),
    "an error of the step itself": ("fails_by_itself", CALLED, "fail"),
    "an error that an option brings": ("fails_when_fused", CALLED.changed(options={"fused": True}), "fail"),
    "a wrong result": ("hidden_state", CALLED, "wrong"),
    "a changed input": ("changes_its_input", CALLED, "wrong"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, probe_server):
    """{what: record} of all of them, probed on the CPU."""
    probes = [
        Probe(kind="step", subject=Subject(target=f"{STEPS}:{name}"), arm=arm, args={"device": "cpu"})
        for name, arm, _ in FAILING.values()
    ]
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        return dict(zip(FAILING, pool.run(probes)))


@pytest.mark.parametrize("what", FAILING)
def test_the_script_shows_what_was_recorded(recorded, tmp_path, what):
    found = recorded[what]
    assert found.status == FAILING[what][2], found.reason or found.chain
    script = tmp_path / "repro.py"
    assert write(found, INFO, script) == [script]
    text = script.read_text()
    assert "import capturebook" not in text.replace("from capturebook.subjects import Step", "")
    assert str(STEPS.parent) not in text
    proof = prove(script, found)
    assert proof.holds, (proof.says, text)


def test_another_failure_is_not_the_same(recorded, tmp_path):
    """The subject is mended, or fails otherwise, after the record: the script is written and nothing is claimed."""
    found = recorded["a changed input"]
    script = tmp_path / "repro.py"
    write(found, INFO, script)
    mended = tmp_path / "mended.py"
    mended.write_text(script.read_text().replace("x.zero_()", "x.abs()"))
    proof = prove(mended, found)
    assert not proof.holds and "it showed pass, not wrong warm-up" in proof.says
    endless = tmp_path / "endless.py"
    endless.write_text("while True:\n    pass\n")
    assert prove(endless, found, deadline=1.0).says == "it did not end within 1 s"
    liar = tmp_path / "liar.py"
    liar.write_text('print("reproduced")\n')
    assert not prove(liar, found).holds


def test_the_folder_of_a_proof_that_was_killed_is_removed_by_the_next(tmp_path, monkeypatch):
    waits, ends = tmp_path / "waits.py", tmp_path / "ends.py"
    waits.write_text("open('here', 'w').close()\nimport time\ntime.sleep(600)\n")
    ends.write_text("")
    code = "import sys, pathlib; from capturebook.repro import prove; prove(pathlib.Path(sys.argv[1]), None, 600.0)"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", code, str(waits)], env=env)
    until(lambda: list(tmp_path.glob("capturebook-repro-*/here")), 60)
    (script,) = processes.children(owner.pid)
    owner.kill()
    owner.wait()
    os.killpg(script, signal.SIGKILL)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prove(ends, fail(CALLED, None, "'two'"))
    assert not list(tmp_path.glob("capturebook-repro-*"))


def test_a_subject_of_several_files_lies_beside_and_is_found_there(tmp_path):
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "scale.py").write_text("from .more import two\n\ndef scale(x):\n    return x * two(x)\n")
    (folder / "parts" / "more.py").write_text('def two(x):\n    raise KeyError("two")\n')
    (folder / "unused.py").write_text("raise SystemError\n")
    (folder / "own.py").write_text(
        "import numpy\nfrom capturebook.subjects import Step\nfrom parts.scale import scale\nimport torch\n\n"
        "def build(width=4):\n    return Step(fn=scale, make_inputs=lambda seed: (torch.zeros(width),))\n"
    )
    found = sources(f"{folder}/own.py:build")
    assert {"own.py", "parts/__init__.py", "parts/scale.py", "parts/more.py"} < set(found.files)
    assert "unused.py" not in found.files and found.foreign == {"numpy"}
    made = fail(CALLED, None, "'two'", stage="warmup", effective={"device": "cpu"})
    root = made.chain[-1].model_copy(update={"type": "KeyError"})
    subject = Subject(target=f"{folder}/own.py:build", options={"width": 2})
    made = made.model_copy(update={"chain": [root], "subject": subject})
    script = tmp_path / "out.py"
    written = write(made, INFO, script)
    assert (tmp_path / "out_subject" / "parts" / "more.py") in written
    (folder / "own.py").unlink()
    proof = prove(script, made)
    assert proof.holds, proof.says


def test_the_built_in_step_brings_its_kernels_and_nothing_of_the_instrument():
    found = sources("capturebook.subjects.sparse_mla:build")
    kernels = "capturebook/kernels/sparse_mla"
    assert {f"{kernels}/mma.py", f"{kernels}/pinned.json"} <= set(found.files)  # the tunings, which pinned.py reads
    assert not any(part in name for name in found.files for part in ("probes", "records", "attribution"))
    assert not found.foreign


@pytest.mark.parametrize(
    "arm",
    [
        Arm(),
        Arm(warmup="kernel_cold", compile="default", dynamic=True),
        Arm(warmup="warm1", stream="other", thread="other", capture="thread_local", env={"A": "1", "B": ""}),
        Arm(tuning="pinned", compile="eager", fullgraph=True, batch=4),
        Arm(variant="twin", warmup="cold", capture="relaxed"),
    ],
    ids=lambda arm: arm.label(),
)
@pytest.mark.parametrize("driven", [{}, {"effective": {"phases": ["warmup"]}}], ids=["driver", "drive"])
@pytest.mark.parametrize("status", ["fail", "wrong"])
def test_every_arm_gives_a_script_without_a_name_that_is_missing(arm, status, driven, tmp_path):
    """The lines that only a GPU runs are at least whole: ruff finds no undefined name in them."""
    checks = [Check(call="replay 2", output="out", error=1.0, tolerance=0.1, ok=False)]
    tuned = {"tuning": {"k": [{"key": "x", "config": {"num_warps": 4}}]}, "subject": Subject(target=f"{STEPS}:right")}
    tuned |= driven
    made = fail(arm, 905, **tuned) if status == "fail" else record(arm, "wrong", checks=checks, **tuned)
    script = tmp_path / "repro.py"
    write(made, {**INFO, "provenance": {"gpu": {"name": "one"}}}, script)
    compile(script.read_text(), "repro.py", "exec")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F823", str(script)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_file_that_asks_where_it_lies_is_not_inlined(tmp_path):
    (tmp_path / "own.py").write_text("import os\nHERE = os.path.dirname(__file__)\ndef build():\n    return HERE\n")
    assert sources(f"{tmp_path}/own.py:build").inline() is None


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (record(CALLED), "its status is pass; allowed: fail or wrong"),
        (fail(Arm(tuning="cached"), 900), "tuning=cached starts from another process's cache folder"),
        (fail(CALLED, 900, caveats=["the subject has no twin: a generic one stood in"]), "is of the generic twin"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(made, said, tmp_path):
    with pytest.raises(ReproError, match=said):
        write(made, INFO, tmp_path / "x.py")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, monkeypatch, capsys):
    """From a probe on the command line to a proven script that plain python runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(STEPS.read_text())
    question = "capture=none,compile=eager,fullgraph=true,warmup=warm1"
    words = ["probe", "own.py:untraceable", "--arm-only", "--device", "cpu", "--question", question]
    assert cli.main([*words, "--json", "--run-dir", str(tmp_path / "run")]) == 0
    probe = json.loads(capsys.readouterr().out)["probe"]
    assert cli.main(["repro", str(tmp_path / "run"), probe[:6], "-o", "repro.py", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["proven"] and found["shown"]["type"] == "Unsupported" and "proven: run in a process" in err
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("reproduced\n")
    assert "own.py" in done.stdout + (tmp_path / "repro.py").read_text()

    assert cli.main(["repro", str(tmp_path / "run"), probe, "-o", "repro.py"]) == 2
    assert "'repro.py' exists already; allowed: a new .py file" in capsys.readouterr().err
    assert cli.main(["repro", str(tmp_path / "run"), "zz", "-o", "other.py"]) == 2
    assert f"'zz' is no probe of this run; those that failed: {probe}" in capsys.readouterr().err


def test_of_many_failed_probes_twelve_are_named_and_the_rest_counted(repo, capsys):
    run = repo / "outputs" / "h200"
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    failed = {r["probe"] for r in lines if r["kind"] == "step" and r["status"] in ("fail", "wrong")}
    assert len(failed) > 12
    assert cli.main(["repro", str(run), "zz"]) == 2
    named = capsys.readouterr().err.strip().partition("those that failed: ")[2]
    assert named.endswith(f" and {len(failed) - 12} more") and named.count(",") == 11
