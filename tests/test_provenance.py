"""Provenance and doctor: the code's hash against git's own, GPUs by a stand-in for NVML, and what is said of them."""

import getpass
import json
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from capturebook import doctor, provenance
from capturebook.cli import main
from capturebook.params import load_preset, validate
from capturebook.requirements import check


@pytest.fixture
def checkout(tmp_path, repo, monkeypatch):
    """A small repository with the three code folders, where git's own idea of a tree can be asked for."""
    for name in ("lib/capturebook/params", "params"):
        shutil.copytree(repo / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "notebooks").mkdir()
    # Names that git sorts in its own way: a folder as if it ended in a slash.
    for name in ("a.ipynb", "a/b.txt", "a-c.txt", "B.txt"):
        path = tmp_path / "notebooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode() + b"\r\n\0")
    shutil.copy(repo / ".gitignore", tmp_path)
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path))
    return tmp_path


def git(root: Path, *words: str) -> str:
    settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "core.fileMode=false", "-c", "core.autocrlf=false"]
    return subprocess.run(
        ["git", *settings, *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_code_tree_is_the_tree_that_git_would_write(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", "lib", "notebooks", "params")
    assert provenance.code_tree() == git(checkout, "write-tree")


def test_code_tree_sees_every_byte_of_the_code_and_nothing_else(checkout):
    before = provenance.code_tree()
    (checkout / "README.md").write_text("not code")
    (checkout / "lib" / "__pycache__").mkdir()
    (checkout / "lib" / "__pycache__" / "x.pyc").write_bytes(b"1")
    (checkout / "notebooks" / ".ipynb_checkpoints").mkdir()
    (checkout / "notebooks" / ".ipynb_checkpoints" / "a.ipynb").write_bytes(b"1")
    (checkout / "notebooks" / "empty").mkdir()
    (checkout / "params" / "cpu.yaml").chmod(0o755)
    assert provenance.code_tree() == before
    for name in ("lib/capturebook/params/cells.py", "notebooks/a.ipynb", "params/cpu.yaml"):
        with open(checkout / name, "ab") as file:
            file.write(b" ")
        before, changed = provenance.code_tree(), before
        assert before != changed, name


def test_dirty_means_that_code_differs_from_the_commit(checkout):
    assert (provenance.collect()["commit"], provenance.collect()["dirty"]) == (None, None), "no git, nothing known"
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "all")
    assert provenance.collect()["dirty"] is False
    assert provenance.collect()["commit"] == git(checkout, "rev-parse", "HEAD")
    (checkout / "README.md").write_text("not code")
    assert provenance.collect()["dirty"] is False
    (checkout / "params" / "new.yaml").write_text("seed: 1\n")
    assert provenance.collect()["dirty"] is True


def test_it_is_json_without_host_user_or_folders():
    text = json.dumps(provenance.collect(), allow_nan=False)
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text and str(Path(sys.executable).parent) not in text
    assert f'"{getpass.getuser()}"' not in text


def test_versions_are_those_that_the_modules_say():
    code = "import torch, triton, json; print(json.dumps([torch.__version__, torch.version.cuda, triton.__version__]))"
    said = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    facts = provenance.collect()
    assert [facts["torch"], facts["torch_cuda"], facts["triton"]] == said
    assert facts["packages"]["pydantic"] == metadata.version("pydantic")


def stand_in(monkeypatch, name="NVIDIA H200", capability=(9, 0), free=100, processes=(), cuda=13000, mig=False):
    """NVML as a machine with one GPU would answer; a MIG slice refuses clocks, power and temperature."""

    def told(value):
        def answer(*_):
            if mig:
                raise pynvml.NVMLError_NotSupported
            return value

        return answer

    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetCudaDriverVersion": lambda: cuda,
        "nvmlSystemGetDriverVersion": lambda: "580.159.04",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: "gpu0",
        "nvmlDeviceGetUUID": lambda handle: "GPU-8a1b2c3d-0000-1111-2222-333344445555",
        "nvmlDeviceGetName": lambda handle: name.encode(),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: capability,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=140 << 30, free=free << 30),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: list(processes),
        "nvmlDeviceGetPowerManagementLimit": told(700000),
        "nvmlDeviceGetClockInfo": told(1980),
        "nvmlDeviceGetMaxClockInfo": told(1980),
        "nvmlDeviceGetTemperature": told(30),
    }
    for function, answer in answers.items():
        monkeypatch.setattr(pynvml, function, answer)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_gpu_is_described_without_naming_the_very_card(monkeypatch):
    stand_in(monkeypatch)
    facts = provenance.collect()
    assert (facts["driver"], facts["driver_cuda"], facts["no_gpu"]) == ("580.159.04", "13.0", "")
    gpu = facts["gpu"]
    assert (gpu["name"], gpu["sm"], gpu["memory_gib"], gpu["free_gib"]) == ("NVIDIA H200", "sm_90", 140.0, 100.0)
    assert (gpu["clock_mhz"], gpu["power_limit_w"], gpu["temperature_c"], gpu["processes"]) == (1980, 700.0, 30, 0)
    assert "8a1b2c3d" not in json.dumps(facts) and len(gpu["id"]) == 12


def test_what_a_slice_of_a_gpu_does_not_tell_is_none(monkeypatch):
    stand_in(monkeypatch, mig=True)
    gpu = provenance.collect()["gpu"]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["clock_mhz"] is gpu["power_limit_w"] is gpu["temperature_c"] is None


def test_a_hidden_gpu_is_no_gpu_and_says_why(monkeypatch):
    stand_in(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    facts = provenance.collect()
    assert facts["gpu"] is None and facts["no_gpu"] == "CUDA_VISIBLE_DEVICES='' hides every GPU"
    assert doctor.choose_preset(facts) == ("cpu", "no CUDA GPU: CUDA_VISIBLE_DEVICES='' hides every GPU")


def facts(name="NVIDIA H200", sm="sm_90", **changed) -> dict:
    gpu = {"name": name, "sm": sm, "memory_gib": 140.0, "free_gib": 100.0, "processes": 0}
    found = {"gpu": gpu, "no_gpu": "", "torch": "2.11.0+cu130", "torch_cuda": "13.0", "triton": "3.6.0"}
    found |= {"driver": "580.159.04", "driver_cuda": "13.0", "python": "3.12.3", "cores": 16, "dirty": False}
    return found | changed


@pytest.mark.parametrize(
    "name, sm, preset",
    [
        ("NVIDIA H200", "sm_90", "h200"),
        ("NVIDIA H200 NVL", "sm_90", "h200"),
        ("NVIDIA GH200 480GB", "sm_90", "gpu"),
        ("NVIDIA H100 80GB HBM3", "sm_90", "gpu"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm_120", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "sm_120", "rtx_pro_6000"),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89", "gpu"),
        ("NVIDIA B200", "sm_100", "gpu"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "gpu"),
        ("Tesla V100-SXM2-16GB", "sm_70", "cpu"),
    ],
)
def test_the_preset_that_a_gpu_gets(name, sm, preset):
    chosen, why = doctor.choose_preset(facts(name, sm))
    assert chosen == preset and name in why and sm in why
    assert validate(load_preset(chosen)).preset == preset


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"gpu": None, "no_gpu": "the driver finds no GPU"}, "no CUDA GPU: the driver finds no GPU"),
        ({"torch": "2.13.0+cpu", "torch_cuda": None}, "built without CUDA, so the NVIDIA H200 stays unused"),
        ({"driver": "550.54.14", "driver_cuda": "12.4"}, "driver 550.54.14 is for CUDA 12.4 and older"),
        ({"driver": "550.54.14", "driver_cuda": "12.4"}, "needs R580 or newer"),
        ({"torch": None, "torch_cuda": None}, "torch is not installed"),
    ],
)
def test_a_gpu_that_cannot_be_used_gives_the_cpu_preset_and_the_reason(changed, said):
    found = facts(**changed)
    preset, why = doctor.choose_preset(found)
    assert preset == "cpu" and said in why
    assert any(said in line for line in doctor.cannot(found))
    assert not any("\n" in line for line in doctor.report(found))


def test_an_older_minor_version_of_the_same_cuda_is_fine():
    assert doctor.choose_preset(facts(torch_cuda="12.8", driver_cuda="12.4"))[0] == "h200"


def test_what_is_missing_on_a_machine_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = "\n".join(doctor.cannot(facts(triton=None)))
    assert "no C compiler" in lines and "no C++ compiler" in lines and "triton is not installed" in lines
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    lines = "\n".join(doctor.cannot(facts()))
    assert "no C compiler" not in lines and "no C++ compiler" in lines


def test_a_busy_or_a_full_gpu_is_said():
    busy = facts()
    busy["gpu"] |= {"processes": 2, "free_gib": 3.5}
    assert any("2 processes are on it now" in line for line in doctor.cannot(busy))
    assert any("3.5 GiB of GPU memory are free" in line for line in doctor.notes(busy))
    assert not any("GiB" in line for line in doctor.notes(facts()))


def test_doctor_speaks_to_people_and_to_programs(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] == doctor.choose_preset(found["provenance"])[0]
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"preset {found['preset']}: {found['why']}\n") and err == ""
    (_, probe, last) = [line for line in out.splitlines() if line.startswith("next: ")]
    assert "capturebook probe mine.py:build" in probe and out.endswith(f"{last}\n") and "capturebook params" in last


@pytest.mark.gpu
def test_this_gpu_is_the_one_that_torch_uses():
    code = "import torch; p = torch.cuda.get_device_properties(0); print(p.name, f'sm_{p.major}{p.minor}', sep='|')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    facts = provenance.collect()
    assert f"{facts['gpu']['name']}|{facts['gpu']['sm']}" == said
    assert doctor.choose_preset(facts)[0] != "cpu" and check(("test",)) == []


def test_whether_the_sample_run_was_made_with_the_present_code(repo):
    path = repo / "outputs" / "h200" / "run.json"
    if not path.exists():
        pytest.skip("outputs/h200 holds no run")
    recorded, present = json.loads(path.read_text())["code"], provenance.code_tree()
    assert re.fullmatch(r"[0-9a-f]{40}", recorded)
    if recorded != present:
        pytest.skip(f"outputs/h200 was recorded with code tree {recorded[:12]}; the present one is {present[:12]}")


@pytest.mark.parametrize(("name", "said"), [("plain", 0), ("with space", 1), ("it's", 1)])
def test_a_checkout_in_whose_path_torch_cannot_compile_for_the_cpu_is_told(tmp_path, monkeypatch, name, said):
    for part in ("notebooks", "params"):
        (tmp_path / name / part).mkdir(parents=True)
    monkeypatch.setenv("CAPTUREBOOK_ROOT", str(tmp_path / name))
    lines = [line for line in doctor.cannot(facts()) if line.startswith("torch.compile for the CPU: the path")]
    assert len(lines) == said and not any(str(tmp_path) in line for line in lines)


def test_doctor_names_what_is_missing_and_says_none_of_nothing():
    bare = facts(gpu=None, no_gpu="no NVIDIA driver", torch=None, torch_cuda=None, triton=None, driver=None)
    lines = doctor.report(bare)
    assert lines[1] == "Python 3.12.3, no torch, no triton, no driver; 16 cores; no GPU"
    assert not any("None" in line for line in lines)
    assert "torch 2.11.0+cu130, triton 3.6.0, driver 580.159.04" in doctor.report(facts(driver_cuda="13.0"))[1]
