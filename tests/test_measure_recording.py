"""A user's own step in the build check: launches recorded and compiled without a GPU. GPU: test_measure_own_gpu.py."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from capturebook.measure.build import BuildError, build_rows
from capturebook.measure.launches import RecordingError, record_step
from capturebook.measure.specialise import specialise
from capturebook.probes import ProbePool
from conftest import REPO

STEPS = Path(__file__).with_name("planted_own.py")
OWN = f"{REPO}/examples/own_kernel.py:build"


def step(name: str) -> str:
    return f"{STEPS}:{name}"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    path, records = tmp_path_factory.mktemp("run"), []
    run = SimpleNamespace(path=path, name="test", nonce="f00d", append=records.append, records=records)
    with ProbePool(run, on_event=lambda text: None) as pool:
        yield pool


def test_the_example_compiles_without_a_line_from_its_author(pool):
    """registers and occupancy are checked against ptxas and the cubin by the job itself; here: which rows there are."""
    built = build_rows(pool.run, [120], False, examples=OWN, step={"width": 2048}, cache="")
    assert [(r["kernel"], r["config"].split()[0], r["target"], r["pinned"], r["status"]) for r in built.rows] == [
        ("rms_norm", f"num_warps={warps}", "sm_120", warps == 4, "pass") for warps in (2, 4)
    ]
    assert all(row["registers"] > 0 and row["fits"] for row in built.rows)
    assert built.rows[0]["arguments"]["BLOCK"] == "=2048", "what build was given reaches the call"
    assert built.left == 1 and built.unseen == []


def arguments(name: str, sm: int = 90, **options) -> list[tuple]:
    recording = record_step(step(name), options, sm)
    return [(e.name, e.config, e.pinned, specialise(e.kernel, e.args, e.config, sm)) for e in recording.examples]


def test_specialisation_is_that_of_the_call():
    (odd,) = arguments("shifted", offset=1)
    (even,) = arguments("shifted", offset=8)
    assert odd[3].arguments()["x"] == "*bf16" and even[3].arguments()["x"] == "*bf16 %16"
    assert odd[2], "the only configuration is the pinned one"
    assert odd[3].options.num_warps == 8 and odd[1].num_warps == 8


def test_every_launch_that_compiles_differently_is_one_example():
    names = [name for name, *_ in arguments("launches_thrice")]
    assert names == ["scale", "scale (call 2)"], "two of the three launches compile alike"
    (found,) = arguments("warms_up")
    assert found[3].arguments()["BLOCK"] == "=1024", "what is compiled ahead is no launch"


def test_heuristics_prunes_and_hooks_are_followed():
    found = arguments("tuned")
    assert [config.kwargs["BLOCK"] for _, config, *_ in found] == [64, 128], "256 is pruned for this capability"
    assert [config.kwargs["BLOCK"] for _, config, *_ in arguments("tuned", sm=120)] == [64, 128, 256]
    assert [s.arguments()["HALF"] for *_, s in found] == ["=32", "=64"]
    assert [pinned for *_, pinned, _ in found] == [False, True]
    assert found[0][3].arguments()["mode"] == "=1", "a configuration's pre_hook sets what the kernel is compiled for"


def test_a_pinned_entry_that_is_no_configuration_is_added():
    found = arguments("pinned_elsewhere")
    assert [(c.kwargs["BLOCK"], c.num_warps, pinned) for _, c, pinned, _ in found] == [
        (64, 4, False),
        (128, 4, False),
        (512, 2, True),
    ]


def test_torch_ops_between_launches_work_on_what_was_never_computed():
    assert [name for name, *_ in arguments("ops_between")] == ["scale", "add"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: cuda is cuda")
def test_a_step_for_cuda_is_recorded_on_the_cpu():
    (found,) = arguments("says_cuda")
    assert found[3].arguments()["x"] == "*fp32 %16"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: cuda is cuda")
def test_the_kernel_of_the_readme_is_recorded_as_it_stands(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "mine.py").write_text(block)
    (found,) = record_step(f"{tmp_path}/mine.py:build", {}, 90).examples
    assert found.name == "double_kernel" and found.args["x"].shape == (8, 4096)


def test_launches_in_operators_and_compiled_functions_are_seen():
    recording = record_step(step("launches_in_an_operator"), {}, 90)
    assert [e.name for e in recording.examples] == ["scale"] and recording.unseen == []


def test_a_tensor_descriptor_keeps_its_block():
    (found,) = arguments("takes_descriptors")
    assert "512" in found[3].arguments()["source"]


def line_of(text: str) -> int:
    """Where a text stands first in the planted steps."""
    return next(n for n, line in enumerate(STEPS.read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("name", "launches", "code", "read"),
    [
        ("reads_then_launches", 1, "if y[0].item() != y[0].item()", ".item()"),
        ("branches_on_a_result", 1, "return scaled(y) if y.sum() > 0 else y", "return scaled(y) if y.sum() > 0 else y"),
        ("branches_on_an_operators_result", 1, "x if triple(x).any()", "return Step(fn=lambda x: x if triple(x).any()"),
        ("branches_on_its_own_buffer", 1, "if (out * weight).sum().item() > 0", ".item()"),
        ("lists_a_result", 1, "in scaled(x)[:2].tolist()]", ".tolist()"),
        ("result_decides_a_shape", 1, "return scaled(y[y > 0])", "return scaled(y[y > 0])"),
    ],
)
def test_a_read_of_a_value_that_no_launch_computed_ends_the_list_and_is_placed(name, launches, code, read):
    recording = record_step(step(name), {}, 90)
    assert len(recording.examples) == launches
    assert recording.stopped.startswith(f"stopped at tests/planted_own.py:{line_of(code)} ({read}")
    assert recording.stopped.endswith("): what is launched after it is not listed")


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("catches", {"error": "exception"}, "# caught"),
        ("catches", {"error": "all"}, "# caught"),
        ("raises_another", {}, "# told otherwise"),
    ],
)
def test_a_step_that_catches_what_ends_the_list_ends_it_there_all_the_same(name, options, code):
    """Nothing that it launches afterwards, in `finally` or with the value it made up, is listed."""
    recording = record_step(step(name), options, 90)
    assert [e.args["x"].shape[0] for e in recording.examples] == [4096] and recording.unseen == []
    assert recording.stopped.startswith(f"stopped at tests/planted_own.py:{line_of(code)} (.item())")


def test_what_is_read_before_and_after_the_call():
    """A build that needs a result cannot be built here, whatever it catches; a step is closed after its last launch."""
    with pytest.raises(RecordingError, match=r"could not be built .*UnrealValue: Tensor\.tolist reads .*planted_own"):
        record_step(step("reads_while_built"), {}, 90)
    closed = record_step(step("reads_when_closed"), {}, 90)
    assert [e.name for e in closed.examples] == ["scale"] and closed.stopped == ""


def test_what_was_launched_before_a_read_is_compiled_and_the_record_says_where_it_stopped(pool):
    built = build_rows(pool.run, [90], False, examples=step("reads_then_launches"), step={}, cache="")
    assert [(r["kernel"], r["status"]) for r in built.rows] == [("scale", "pass")]
    assert re.fullmatch(r"stopped at tests/planted_own\.py:\d+ \(\.item\(\)\): what .* is not listed", built.stopped)
    listing = pool.run_folder.records[-2]
    assert listing.caveats == [built.stopped] and listing.payload["stopped"] == built.stopped


def test_control_flow_on_inputs_is_the_steps_own_business():
    assert [name for name, *_ in arguments("branches_on_an_input")] == ["scale"]


def test_what_was_not_seen_is_said():
    recording = record_step(step("hides_launches"), {}, 90)
    assert [e.name for e in recording.examples] == ["scale"]
    assert recording.unseen == [
        "kernel add is declared and was not launched by the call",
        "operator planted_own.double.default launched no Triton kernel here",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, and the operator runs on it")
def test_an_operator_for_cuda_alone_is_named():
    with pytest.raises(RecordingError, match="could not be called.*NotImplementedError.*planted_own::on_cuda"):
        record_step(step("needs_cuda"), {}, 90)


def test_a_step_without_launches_or_that_raises_is_one_line_of_the_build(pool):
    with pytest.raises(BuildError, match="there is nothing to build; kernel mma_kernel is declared") as caught:
        build_rows(pool.run, [90], False, examples="capturebook.subjects.sparse_mla:build", step={"batch": 1}, cache="")
    assert caught.value.status == "skipped"
    raised = rf"could not be called .*ValueError: not today, at tests/planted_own\.py:{line_of('raise ValueError')}$"
    with pytest.raises(BuildError, match=raised) as caught:
        build_rows(pool.run, [90], False, examples=step("raises"), step={}, cache="")
    assert caught.value.status == "fail" and str(STEPS.parent) not in str(caught.value)
    if not torch.cuda.is_available():
        with pytest.raises(BuildError, match="planted_own::on_cuda.*at tests/planted_own.py") as caught:
            build_rows(pool.run, [90], False, examples=step("needs_cuda"), step={}, cache="")
        assert caught.value.status == "skipped", "on a GPU it can be listed: no fault of the step's"
    with pytest.raises(BuildError, match="build takes no 'depth'; allowed: batch, width"):
        build_rows(pool.run, [90], False, examples=OWN, step={"depth": 3}, cache="")


def test_nothing_stays_patched():
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    before = JITFunction.run, Autotuner.run, torch.cuda.get_device_capability, driver._active
    record_step(step("ops_between"), {}, 90)
    with pytest.raises(RecordingError):
        record_step(step("raises"), {}, 90)
    assert before == (JITFunction.run, Autotuner.run, torch.cuda.get_device_capability, driver._active)
    assert torch.empty(3).device.type == "cpu" and not torch.are_deterministic_algorithms_enabled()


def test_the_command_line_builds_a_users_file(tmp_path):
    """--json on stdout, everything else on stderr; the record names the step."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CAPTUREBOOK_ROOT": str(planted_root(tmp_path / "root"))}
    command = [sys.executable, "-m", "capturebook", "build", OWN, "--targets", "90", "--option", "width=1024", "--json"]
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [(r["kernel"], r["status"]) for r in json.loads(done.stdout)] == [("rms_norm", "pass")] * 3
    bad = subprocess.run(
        [sys.executable, "-m", "capturebook", "build", "--option", "width=8"], env=env, capture_output=True, text=True
    )
    assert bad.returncode == 2 and "--option: given 'width=8'; allowed: with a TARGET" in bad.stderr


def test_the_command_line_says_where_the_call_was_stopped(tmp_path, monkeypatch, capsys):
    """What was compiled stands on stdout and the exit is 0: rows that --json promises are whole."""
    from capturebook.cli import main
    from capturebook.measure import build

    row = {"target": "sm_90", "kernel": "scale", "status": "pass", "reason": ""}
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(planted_root(tmp_path / "root")))
    monkeypatch.setattr(build, "build_rows", lambda *a, **k: build.BuildResult([row], 0, ["one"], "stopped at a.py:3"))
    assert main(["build", step("scaled"), "--targets", "90", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == [row] and "stopped at a.py:3\nnot seen: one\n" in told.err


def planted_root(path: Path) -> Path:
    """A repository that runs go to, so that none is left in the real one."""
    for name in ("notebooks", "params"):
        (path / name).mkdir(parents=True)
    (path / "params" / "hypotheses").symlink_to(REPO / "params" / "hypotheses")
    return path
