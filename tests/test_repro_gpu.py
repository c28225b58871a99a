"""Exported scripts of failures that need a GPU: run in a process of their own, they show the recorded root."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capturebook.probes import Probe, ProbePool
from capturebook.records import Arm, Subject
from capturebook.repro import prove, write
from test_probes import Run

pytestmark = pytest.mark.gpu
STEPS = Path(__file__).parent / "planted_steps_gpu.py"
DRIVEN = Path(__file__).parent / "planted_drive_gpu.py"
BUILT_IN = "capturebook.subjects.sparse_mla:build"
CONTROLS = "capturebook.subjects.controls"
INFO = {"parameters": {"env": {}, "preload": []}, "provenance": {"gpu": {"name": "here"}}}
STORY = Arm(kernel="mma", compile="default", overlap=True, sync="stream", graph_break="between", tuning="pinned")

FAILING = {
    "a wait on uncaptured work": (f"{STEPS}:joins_what_it_never_forked", Arm(), ("fail", 905)),
    "freed memory": (f"{STEPS}:reads_freed_memory", Arm(), ("wrong",)),
    "a rebound weight": (f"{STEPS}:rebinds_its_weight", Arm(), ("wrong",)),
    "an input rebound by the caller": (f"{DRIVEN}:rebinds_its_input", Arm(), ("wrong",)),
    "an input freed by the caller": (f"{DRIVEN}:frees_its_input", Arm(), ("wrong",)),
    "a sync in the caller's capture": (f"{DRIVEN}:fails_in_its_capture", Arm(), ("fail", 900)),
    "a control": (f"{CONTROLS}:planted_item", Arm(variant="control", warmup="warm1"), ("fail", 900)),
    "a baked scalar": (f"{CONTROLS}:baked_scalar", Arm(variant="control", warmup="warm1"), ("wrong",)),
    "the story": (BUILT_IN, STORY, ("fail", 905)),
    "a cold live autotune": (
        BUILT_IN,
        Arm(kernel="mma", warmup="kernel_cold", overlap=False, graph_break="none"),
        ("fail", 900),
    ),
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """{what: (record, proof, script)}: all recorded by one pool, then all scripts run, several at a time."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STEPS.parent), os.environ.get("PYTHONPATH", "")])
    probes = [Probe(kind="step", subject=Subject(target=t), arm=arm) for t, arm, _ in FAILING.values()]
    with ProbePool(Run(tmp_path_factory.mktemp("run")), on_event=lambda text: None) as pool:
        records = dict(zip(FAILING, pool.run(probes)))
    folder = tmp_path_factory.mktemp("scripts")
    scripts = {what: folder / f"repro{number}.py" for number, what in enumerate(records)}
    for what, script in scripts.items():
        write(records[what], INFO, script)
    with ThreadPoolExecutor(5) as pool:
        proofs = dict(zip(scripts, pool.map(lambda what: prove(scripts[what], records[what]), scripts)))
    return {what: (records[what], proofs[what], scripts[what]) for what in records}


@pytest.mark.parametrize("what", FAILING)
def test_the_script_shows_the_same_root(shown, what):
    found, proof, script = shown[what]
    assert (found.status, *([found.root.code] if found.root else [])) == FAILING[what][2], found.reason or found.chain
    assert proof.holds, (proof.says, script.read_text())
